"""The bundled capture, so that a first visitor sees a real result in seconds: see `README.md` beside it."""

from pathlib import Path


def sample_folder() -> Path:
    """The folder that holds the record, the snapshot, the names and the source of the run."""
    return Path(__file__).resolve().parent / "evaluation_graph"
