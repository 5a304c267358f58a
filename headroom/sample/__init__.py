"""The bundled capture, so that a first visitor sees a real result in seconds: see `README.md` beside it."""

from pathlib import Path


def sample_folder() -> Path:
    """The folder that holds the record, the snapshot and the names of the run."""
    return Path(__file__).resolve().parent / "evaluation_graph"


def sample_source_folder() -> Path:
    """The folder that holds the program that was run: the scenarios ship with the package."""
    return Path(__file__).parent.parent / "eval" / "scenarios"
