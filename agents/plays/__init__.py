"""The built-in cures, one a file."""
