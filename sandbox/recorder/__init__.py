"""The recorder: runs inside the user's interpreter; imports itself, the standard library and torch."""
