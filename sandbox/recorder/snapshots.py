"""What is done to a snapshot before it is written: the user's paths, none of our frames, owners of backward passes."""

import re
from collections.abc import Iterator
from typing import Any

from .config import Config
from .frames import STAND_IN
from .launch import own_frame
from .sites import Sites

BACKWARD_MARKER = "[backward] "
ENGINE_CALL = "_engine_run_backward"
"""The innermost Python frame of what the engine does on the thread that called it (torch/autograd/graph.py)."""
_OWNED = re.compile(r"hr:u=[0-9]+,c=[0-9]+,p=backward,n=([^,]*)(?:,s=([0-9]{1,9})(?![0-9]))?")
_ALLOCATES = frozenset({"alloc", "segment_alloc", "segment_map", "oom"})
_FREES = frozenset({"free_requested", "free_completed", "free"})


def finish_snapshot(snapshot: "dict[str, Any]", config: Config, sites: "Sites | None") -> None:
    """Change a snapshot in place."""
    _clean_frames(snapshot, config)
    if sites is not None:
        owners = _Owners(sites, config)
        for device, trace in enumerate(snapshot["device_traces"]):
            owners.fill(device, trace)
        owners.fill_blocks(snapshot)


def _holders(snapshot: "dict[str, Any]") -> "Iterator[dict[str, Any]]":
    """Everything that has a stack."""
    for segment in snapshot["segments"]:
        yield segment
        yield from segment["blocks"]
    for trace in snapshot["device_traces"]:
        yield from trace


def _clean_frames(snapshot: "dict[str, Any]", config: Config) -> None:
    """Take our frames out of every stack, and rename the files of the others."""
    lists: set[int] = set()
    ours: dict[int, bool] = {}
    for holder in _holders(snapshot):
        frames = holder.get("frames")
        if not frames or id(frames) in lists:
            continue
        lists.add(id(frames))
        found = False
        for frame in frames:
            own = ours.get(id(frame))
            if own is None:
                own = frame["name"] == STAND_IN or own_frame(frame["filename"])
                ours[id(frame)] = own
                frame["filename"] = config.original(frame["filename"])
            found = found or own
        if found:
            frames[:] = [frame for frame in frames if not ours[id(frame)]]


def _has_python(holder: "dict[str, Any]") -> bool:
    """Whether a stack has a Python frame, and not only the virtual GPU's word that it is a node's."""
    frames = holder.get("frames") or ()
    return len(frames) > 1 or any(frame["filename"] != "??" for frame in frames)


def _in_engine(holder: "dict[str, Any]") -> bool:
    """Whether autograd's engine itself allocated, on a thread that Python has called it on.

    Where a checkpoint computes again inside of a backward pass (`use_reentrant=True`), the pass over that part is
    started by Python on the device's thread, so its stack is the checkpoint's and says nothing of the node.
    """
    return any(frame["name"] == ENGINE_CALL for frame in (holder.get("frames") or [])[:1])


class _Owners:
    """Gives the stacks of forward calls to what the backward pass allocated for them."""

    def __init__(self, sites: Sites, config: Config) -> None:
        self._sites, self._config = sites, config
        self._known: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
        self._live: dict[int, dict[int, list[dict[str, Any]]]] = {}

    def fill(self, device: int, trace: "list[dict[str, Any]]") -> None:
        """Fill allocations by their label, and frees by the allocation that they end."""
        live = self._live[device] = {}
        for entry in trace:
            action = entry["action"]
            if action in _ALLOCATES:
                if not _has_python(entry) or _in_engine(entry):
                    self._fill_one(entry)
                if action == "alloc":
                    live[entry["addr"]] = entry.get("frames") or []
            elif action in _FREES and (not _has_python(entry) or _in_engine(entry)):
                frames = live.get(entry["addr"])
                if frames:
                    entry["frames"] = frames

    def _fill_one(self, entry: "dict[str, Any]") -> None:
        found = _OWNED.match(entry.get("user_metadata") or "")
        if found is not None:
            node, site = found.groups()
            if site is not None or node == "AccumulateGrad":
                entry["frames"] = self._frames(node, site)

    def _frames(self, node: str, site: "str | None") -> "list[dict[str, Any]]":
        known = self._known.get((node, site))
        if known is None:
            known = [{"filename": "??", "line": 0, "name": BACKWARD_MARKER + node}]
            for frame in self._sites.frames(int(site)) if site is not None else ():
                frame["filename"] = self._config.original(frame["filename"])
                known.append(frame)
            self._known[node, site] = known
        return known

    def fill_blocks(self, snapshot: "dict[str, Any]") -> None:
        """Live blocks repeat the stack of their allocation."""
        for segment in snapshot["segments"]:
            live = self._live.get(segment["device"], {})
            address = segment["address"]
            for block in segment["blocks"]:
                place = block.get("address", address)
                address = place + block["size"]
                told = _has_python(block) and not _in_engine(block)
                if block["state"].startswith("active") and not told:
                    block["frames"] = live.get(place) or block.get("frames", [])
