"""Programs for the analysis, from their text."""

from headroom.agents.program import Program
from headroom.agents.syntax import parse_file


def program_of(**files: str) -> Program:
    """A program of these files, named without their ending."""
    parsed = {}
    for name, text in files.items():
        file = parse_file(f"/app/{name}.py", text.encode())
        assert file is not None
        parsed[file.path] = file
    return Program(parsed)
