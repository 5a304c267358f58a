"""The versioned schemas that every folder shares. Additive: a reader ignores fields it does not know."""
