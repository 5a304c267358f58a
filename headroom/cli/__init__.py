"""The `headroom` command: each command parses, calls and renders."""
