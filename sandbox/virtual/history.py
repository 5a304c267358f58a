"""The allocator's event history: a ring of trace entries, off until a program or the recorder turns it on.

Source: `TraceEntry`, `RingBuffer` and `record_trace` in `c10/cuda/CUDACachingAllocator.cpp`, option names in
`torch/csrc/cuda/memory_snapshot.cpp`.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from .blocks import Stack


class Context(IntEnum):
    """For which events a stack is taken (`RecordContext`)."""

    NEVER = 0
    STATE = 1
    ALLOC = 2
    ALL = 3


_CONTEXTS = {
    None: Context.NEVER,
    "state": Context.STATE,
    "alloc": Context.ALLOC,
    "all": Context.ALL,
}


@dataclass(slots=True, frozen=True, kw_only=True)
class TraceEntry:
    """One event. `address` is the device's free bytes when the action is `oom`."""

    action: str
    address: int
    size_bytes: int
    stream: int
    time_us: int
    stack: Stack | None
    user_metadata: str


class History:
    """The ring and its settings; the metadata of each thread."""

    def __init__(self) -> None:
        self.enabled = False
        self.context = Context.NEVER
        self._entries: deque[TraceEntry] = deque(maxlen=1)
        self._skipped_actions: frozenset[str] = frozenset()
        self._thread = threading.local()

    def configure(
        self,
        enabled: str | None,
        context: str | None,
        max_entries: int,
        *,
        clear: bool = False,
        skipped_actions: Iterable[str] = (),
    ) -> None:
        """`torch.cuda.memory._record_memory_history`; `enabled=None` stops recording and clears.

        Raises:
            RuntimeError: an option that torch does not know, in torch's words.
        """
        if enabled not in (None, "state", "all"):
            raise RuntimeError("expected state to be 'state', 'all', or None")
        if context not in _CONTEXTS:
            raise RuntimeError("expected context to be 'state', 'alloc', 'all', or None")
        self.enabled = enabled is not None
        self.context = _CONTEXTS[context] if self.enabled else Context.NEVER
        kept = () if clear or not self.enabled else self._entries
        # torch keeps one entry at least, and only one for "state"
        limit = max(1, max_entries) if enabled == "all" else 1
        self._entries = deque(kept, maxlen=limit)
        self._skipped_actions = frozenset(skipped_actions)

    def wants_stack(self, level: Context) -> bool:
        """Whether a stack is to be taken for events of this level."""
        return self.context >= level

    @property
    def metadata(self) -> str:
        """The label that this thread's entries carry (`user_metadata`)."""
        return getattr(self._thread, "metadata", "")

    @metadata.setter
    def metadata(self, text: str) -> None:
        self._thread.metadata = text

    def record(
        self, action: str, address: int, size_bytes: int, stream: int, stack: Stack | None
    ) -> None:
        """Adds one event, if history is on; the oldest leaves a full ring."""
        if not self.enabled or action in self._skipped_actions:
            return
        self._entries.append(
            TraceEntry(
                action=action,
                address=address,
                size_bytes=size_bytes,
                stream=stream,
                time_us=time.time_ns() // 1000,
                stack=stack if self.context >= Context.ALLOC else None,
                user_metadata=self.metadata,
            )
        )

    def entries(self) -> list[TraceEntry]:
        """The events in the ring, oldest first."""
        return list(self._entries)
