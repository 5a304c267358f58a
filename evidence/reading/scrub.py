"""A snapshot without paths and names, small enough to share: what remains is bytes, order, and torch's own frames.

Kept: sizes, addresses, streams, pools, states, actions, relative times, line numbers, frames of torch and of other
installed packages from `site-packages` on, and the numbers of our own labels. Replaced: the user's file and function
names (`user/file_1.py`, `function_1`). Dropped: all other labels, annotations, compile contexts, host settings, and
any field that torch does not write.
"""

import gzip
import pickle
import re
from pathlib import Path
from typing import Any, Final

from headroom.evidence.reading.stacks import BACKWARD_PREFIX
from headroom.evidence.text import NAME_LIMIT, PATH_LIMIT, clean_text

_PACKAGE: Final = re.compile(r"(?:^|/)(?:site|dist)-packages/(?P<rest>.+)$")
_STANDARD: Final = re.compile(
    r"(?:^|/)lib/python3\.\d+/(?P<rest>(?!site-packages|dist-packages).+)$"
)
_CPP: Final = re.compile(r"^\?\?$|\.(?:c|cc|cpp|cu|cuh|h|hpp)$|^$")
_OUR_LABEL: Final = re.compile(r"(hr:u=[0-9]{1,12},c=[0-9]{1,12}(?:,p=[a-z]{1,20})?)")
_SETTINGS: Final = frozenset(
    {
        "max_split_size",
        "garbage_collection_threshold",
        "expandable_segments",
        "roundup_power2_divisions",
    }
)
_SEGMENT_FIELDS: Final = frozenset(
    {
        "device",
        "address",
        "total_size",
        "allocated_size",
        "active_size",
        "requested_size",
        "stream",
        "segment_type",
        "segment_pool_id",
        "is_expandable",
    }
)
_BLOCK_FIELDS: Final = frozenset({"address", "size", "requested_size", "state"})
_ENTRY_FIELDS: Final = frozenset({"action", "addr", "device_free", "size", "stream", "pool_id"})
_COMPRESSION: Final = 6


class _Names:
    """Stand-ins for the user's names, numbered in the order of their first use, and frames that share them."""

    def __init__(self) -> None:
        self._files: dict[str, str] = {}
        self._functions: dict[str, str] = {}
        self._frames: dict[tuple[str, int, str], dict[str, Any]] = {}
        self._stacks: dict[tuple[tuple[str, int, str], ...], list[dict[str, Any]]] = {}

    def stack(self, raw: Any) -> list[dict[str, Any]]:
        """A stack of stand-ins; the same list for the same stack, which is what makes the file small."""
        frames = raw if type(raw) is list else []
        key = tuple(self._key(frame) for frame in frames if type(frame) is dict)
        known = self._stacks.get(key)
        if known is None:
            known = self._stacks[key] = [self._frame(one) for one in key]
        return known

    def _key(self, frame: dict[str, Any]) -> tuple[str, int, str]:
        line = frame.get("line")
        return (
            clean_text(frame.get("filename"), PATH_LIMIT),
            line if type(line) is int and 0 <= line < 2**31 else 0,
            clean_text(frame.get("name"), NAME_LIMIT),
        )

    def _frame(self, key: tuple[str, int, str]) -> dict[str, Any]:
        frame = self._frames.get(key)
        if frame is None:
            filename, line, name = key
            shown_file, shown_name = self._shown(filename, name)
            frame = {"filename": shown_file, "line": line, "name": shown_name}
            self._frames[key] = frame
        return frame

    def _shown(self, filename: str, name: str) -> tuple[str, str]:
        path = filename.replace("\\", "/")
        package, standard = _PACKAGE.search(path), _STANDARD.search(path)
        if package is not None:
            return f"/site-packages/{package['rest']}", name
        if standard is not None:
            return f"/lib/python3/{standard['rest']}", name
        if _CPP.search(path):
            # C++ names are torch's or a compiled extension's; the marker of a backward node is ours.
            kept = "??" if path == "??" else path.rsplit("/", 1)[-1]
            is_torch = "::" in name or name.startswith(BACKWARD_PREFIX) or not name
            return kept, name if is_torch else self._function(name)
        number = len(self._files) + 1
        return self._files.setdefault(filename, f"user/file_{number}.py"), self._function(name)

    def _function(self, name: str) -> str:
        if name in ("<module>", "forward", "__init__", "<lambda>"):
            return name
        return self._functions.setdefault(name, f"function_{len(self._functions) + 1}")


def scrub_tree(tree: Any) -> dict[str, Any]:
    """The shareable form of a loaded snapshot that `parse_snapshot` has accepted."""
    if isinstance(tree, list):
        tree = {"segments": tree}
    names = _Names()
    traces = tree.get("device_traces", [])
    times = [entry.get("time_us", 0) for trace in traces for entry in trace[:1]]
    start = min((time for time in times if type(time) is int), default=0)
    settings = tree.get("allocator_settings")
    return {
        "segments": [_segment(segment, names) for segment in tree["segments"]],
        "device_traces": [[_entry(entry, names, start) for entry in trace] for trace in traces],
        "allocator_settings": {
            key: value
            for key, value in (settings if isinstance(settings, dict) else {}).items()
            if key in _SETTINGS and _is_plain_setting(value)
        },
        "external_annotations": [],
    }


def _is_plain_setting(value: Any) -> bool:
    parts = [part for pair in value.items() for part in pair] if type(value) is dict else [value]
    return all(
        type(part) in (int, float, bool) or (type(part) is str and part.isdigit()) for part in parts
    )


def _segment(raw: dict[str, Any], names: _Names) -> dict[str, Any]:
    kept = _fields(raw, _SEGMENT_FIELDS)
    kept["frames"] = names.stack(raw.get("frames"))
    kept["blocks"] = [_block(block, names) for block in raw["blocks"]]
    return kept


def _block(raw: dict[str, Any], names: _Names) -> dict[str, Any]:
    kept = _fields(raw, _BLOCK_FIELDS)
    frames, history = raw.get("frames"), raw.get("history")
    if isinstance(history, list) and history and isinstance(history[0], dict):
        kept.setdefault("requested_size", history[0].get("real_size", raw.get("size")))
        frames = history[0].get("frames") if frames is None else frames
    kept["frames"] = names.stack(frames)
    return kept


def _entry(raw: dict[str, Any], names: _Names, start: int) -> dict[str, Any]:
    kept = _fields(raw, _ENTRY_FIELDS)
    time = raw.get("time_us", 0)
    kept["time_us"] = time - start if type(time) is int else 0
    label = raw.get("user_metadata")
    ours = _OUR_LABEL.match(label) if isinstance(label, str) else None
    if ours is not None:
        kept["user_metadata"] = ours[1]
    if "frames" in raw:
        kept["frames"] = names.stack(raw["frames"])
    return kept


def _fields(raw: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key in known and _is_scalar(value)}


def _is_scalar(value: Any) -> bool:
    if type(value) in (tuple, list):
        return len(value) == 2 and all(type(part) is int for part in value)
    if type(value) is str:
        return len(value) < 40 and value.replace("_", "").isalpha()
    return type(value) in (int, bool)


def write_scrubbed(tree: dict[str, Any], target: Path) -> None:
    """Write it as a gzipped pickle of protocol 4, the same bytes for the same snapshot."""
    with (
        target.open("wb") as file,
        gzip.GzipFile(
            filename="", fileobj=file, mode="wb", compresslevel=_COMPRESSION, mtime=0
        ) as packed,
    ):
        pickle.dump(tree, packed, protocol=4)
