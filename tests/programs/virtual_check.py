"""Collects checks of a program: each runs at once and prints one JSON line."""

import json
import traceback


def check(function):
    """Runs `function` now; a check passes when it raises nothing."""
    result = {"check": function.__name__, "error": None}
    try:
        function()
    except BaseException as error:
        where = traceback.extract_tb(error.__traceback__)
        line = next((f.lineno for f in reversed(where) if f.name == function.__name__), 0)
        result["error"] = f"line {line}: {type(error).__name__}: {str(error)[:300]}"
    print("CHECK " + json.dumps(result), flush=True)
    return function


def raises(kind, text, function):
    """Asserts that `function` raises `kind` with `text` in its message."""
    try:
        function()
    except kind as error:
        assert text in str(error), str(error)
        return
    raise AssertionError(f"no {kind.__name__}")
