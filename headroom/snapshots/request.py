"""What the child is asked to do, and what it answers: plain dataclasses, pickled over a pipe of ours."""

import dataclasses
import io
import pickle
from dataclasses import dataclass
from typing import Any, Final, Literal

from headroom.evidence.account.account import DeviceFacts
from headroom.evidence.account.names import NameWalk
from headroom.evidence.analysis_model import Analysis
from headroom.snapshots.limits import Limits

Task = Literal["analyse", "scrub"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRequest:
    """One file to read.

    `path` is an uncompressed pickle. `walks` are the names that the recorder saw, `roots` the folders of the program.
    A `scrub` writes the shareable copy to `scrub_to`.
    """

    path: str
    limits: Limits
    task: Task = "analyse"
    device: int | None = None
    roots: tuple[str, ...] = ()
    walks: tuple[NameWalk, ...] = ()
    facts: DeviceFacts | None = None
    scrub_to: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAnswer:
    """The analysis, or one sentence on why there is none. `written_bytes` is the size of a scrubbed copy."""

    analysis: Analysis | None = None
    refused: str | None = None
    written_bytes: int | None = None


_OURS: Final = frozenset(
    {
        "headroom.evidence.model",
        "headroom.evidence.analysis_model",
        "headroom.evidence.account.account",
        "headroom.evidence.account.names",
        "headroom.snapshots.request",
        "headroom.snapshots.limits",
    }
)


class _OwnUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        # A dotted name would walk from one of our modules to whatever it imports.
        if module in _OURS and "." not in name:
            found = super().find_class(module, name)
            if dataclasses.is_dataclass(found) and getattr(found, "__module__", "") == module:
                return found
        raise pickle.UnpicklingError(f"{module}.{name} is not part of an answer")


def pack_message(message: ReadRequest | ReadAnswer) -> bytes:
    """A request or an answer as bytes."""
    return pickle.dumps(message, protocol=5)


def unpack_message(data: bytes) -> Any:
    """A request or an answer from bytes; only our own dataclasses can come out.

    Raises:
        pickle.UnpicklingError: The bytes are torn or hold something else.
    """
    return _OwnUnpickler(io.BytesIO(data)).load()
