"""History entries, as they were loaded, into checked columns.

There may be a million entries, so each column is taken and checked by one call that runs in C; only when a check fails
are the entries looked at one by one, to name the first that is wrong.
"""

from array import array
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, Final, TypeVar

from headroom.errors import SnapshotError
from headroom.evidence.reading.history import ADDRESSED, NO_POOL, NOT_READ, Action, History
from headroom.evidence.reading.stacks import StackTable

# Sizes beyond 256 TiB and addresses beyond 64 bits are no device memory.
MAX_SIZE_BYTES: Final = 2**48
MAX_ADDRESS: Final = 2**64
DEFAULT_POOL: Final = (0, 0)

_CODES: Final[dict[str, int]] = {action.name.lower(): int(action) for action in Action}
_CODES.pop("other")
_ADDRESSED_CODES: Final = frozenset(int(action) for action in ADDRESSED)
_FREES: Final = (int(Action.FREE_REQUESTED), int(Action.FREE_COMPLETED))
_ALLOC: Final = int(Action.ALLOC)
_OOM: Final = int(Action.OOM)
_LABEL_LIMIT: Final = 1000
_NO_FRAMES: Final[list[Any]] = []
# So many frees show whether frees repeat the stack of their allocation.
_FREES_LOOKED_AT: Final = 600

T = TypeVar("T")


def read_history(entries: list[Any], device: int, stacks: StackTable) -> History:
    """Turn a device's entries into columns, checked.

    Args:
        entries: The loaded dictionaries, oldest first.
        device: Index of the device.
        stacks: Takes the stacks of allocations, and of frees that may tell an owner.

    Raises:
        SnapshotError: With one sentence on the first entry that is impossible.
    """
    if not _all_are(entries, dict):
        raise _damaged(entries, device)
    actions = _codes(entries, device)
    sizes = _integers(entries, "size", MAX_SIZE_BYTES, device)
    addresses = _addresses(entries, actions, device)
    pools, pool_ids = _table([entry.get("pool_id") for entry in entries], pool_of, NO_POOL)
    labels, label_texts = _table([entry.get("user_metadata") for entry in entries], _label, -1)
    return History(
        device=device,
        actions=actions,
        addresses=array("Q", addresses),
        sizes_bytes=sizes,
        streams=_lenient(entries, "stream", "Q", 2**64),
        times_us=_lenient(entries, "time_us", "q", 2**63),
        stacks=_stacks(entries, actions, addresses, stacks, device),
        pools=pools,
        pool_ids=pool_ids,
        labels=labels,
        label_texts=label_texts,
        device_free_bytes=_device_free(entries, actions),
    )


def pool_of(raw: object) -> tuple[int, int]:
    """A pool ID from a tuple or, in files born as JSON, a list; the default pool where there is none."""
    if isinstance(raw, tuple | list) and len(raw) == 2 and all(type(part) is int for part in raw):
        return (raw[0], raw[1])
    return DEFAULT_POOL


def _all_are(values: Iterable[Any], kind: type) -> bool:
    # `type(...) is int` is meant: True is no size.
    return set(map(type, values)) <= {kind}


def _codes(entries: list[Any], device: int) -> bytes:
    try:
        return bytes(map(_CODES.__getitem__, map(itemgetter("action"), entries)))
    except (KeyError, TypeError):
        pass
    actions = [entry.get("action") for entry in entries]
    if not _all_are(actions, str):
        raise _damaged(entries, device)
    return bytes(_CODES.get(action, int(Action.OTHER)) for action in actions)


def _integers(entries: list[Any], key: str, limit: int, device: int) -> "array[int]":
    try:
        values = [entry[key] for entry in entries]
    except KeyError:
        raise _damaged(entries, device) from None
    if not _all_are(values, int) or (values and not 0 <= min(values) <= max(values) < limit):
        raise _damaged(entries, device)
    return array("q", values)


def _addresses(entries: list[Any], actions: bytes, device: int) -> list[int]:
    found = [entry.get("addr", -1) for entry in entries]
    if not _all_are(found, int):
        raise _damaged(entries, device)
    if min(found, default=0) < 0:
        # Out-of-memory entries name the device's free bytes in this place; only blocks and segments need an address.
        for index, address in enumerate(found):
            if address < 0:
                if actions[index] in _ADDRESSED_CODES:
                    raise _damaged(entries, device)
                found[index] = 0
    if max(found, default=0) >= MAX_ADDRESS:
        raise _damaged(entries, device)
    return found


def _lenient(entries: list[Any], key: str, code: str, limit: int) -> "array[int]":
    """A column that nothing depends on to the byte: what is absent or impossible is 0."""
    values = [entry.get(key, 0) for entry in entries]
    if not _all_are(values, int) or (values and not 0 <= min(values) <= max(values) < limit):
        values = [value if type(value) is int and 0 <= value < limit else 0 for value in values]
    return array(code, values)


def _table(
    values: list[Any], convert: Callable[[Any], T], absent: int
) -> "tuple[array[int], tuple[T, ...]]":
    """A column of few distinct values as places in a table; the column is empty where all are absent."""
    try:
        distinct = dict.fromkeys(values)
    except TypeError:
        values = [tuple(value) if type(value) is list else None for value in values]
        values = [value if _is_hashable(value) else None for value in values]
        distinct = dict.fromkeys(values)
    distinct.pop(None, None)
    if not distinct:
        return array("i"), ()
    places: dict[Any, int] = {None: absent}
    table: list[T] = []
    numbers: dict[T, int] = {}
    for value in distinct:
        converted = convert(value)
        place = numbers.setdefault(converted, len(table))
        if place == len(table):
            table.append(converted)
        places[value] = place
    return array("i", map(places.__getitem__, values)), tuple(table)


def _is_hashable(value: Any) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True


def _label(raw: object) -> str:
    return raw[:_LABEL_LIMIT] if isinstance(raw, str) else ""


def _device_free(entries: list[Any], actions: bytes) -> dict[int, int]:
    found: dict[int, int] = {}
    index = actions.find(_OOM)
    while index >= 0:
        free = entries[index].get("device_free")
        found[index] = free if type(free) is int and 0 <= free < MAX_SIZE_BYTES else 0
        index = actions.find(_OOM, index + 1)
    return found


def _stacks(
    entries: list[Any], actions: bytes, addresses: list[int], table: StackTable, device: int
) -> "array[int]":
    """Stack numbers of allocations and failures, and of frees that may name an owner.

    Those are the frees that come first at their address, so that their block is older than the history, and some
    others that show whether frees repeat the stack of the allocation.
    """
    numbers = array("i", [NOT_READ]) * len(entries)
    wanted = [index for index, code in enumerate(actions) if code in (_ALLOC, _OOM)]
    first = dict(zip(reversed(addresses), range(len(addresses) - 1, -1, -1), strict=True))
    wanted += [index for index in first.values() if actions[index] in _FREES]
    frees = (index for index, code in enumerate(actions) if code in _FREES)
    wanted += [index for index, _ in zip(frees, range(_FREES_LOOKED_AT), strict=False)]
    frames = [entries[index].get("frames", _NO_FRAMES) for index in wanted]
    if not _all_are(frames, list):
        raise _damaged(entries, device)
    for index, number in zip(wanted, table.intern_all(frames), strict=True):
        numbers[index] = number
    return numbers


def _damaged(entries: list[Any], device: int) -> SnapshotError:
    for index, entry in enumerate(entries):
        fault = _fault(entry)
        if fault is not None:
            return SnapshotError(
                f"The snapshot is damaged: entry {index} of device {device} {fault}."
            )
    return SnapshotError(f"The snapshot is damaged: the history of device {device} is impossible.")


def _fault(entry: Any) -> str | None:
    """What is wrong with a history entry."""
    if type(entry) is not dict:
        return "is no dictionary"
    action = entry.get("action")
    if type(action) is not str:
        return "has no action"
    if _CODES.get(action) in _ADDRESSED_CODES:
        address = entry.get("addr")
        if type(address) is not int or not 0 <= address < MAX_ADDRESS:
            return "has no valid address"
    size = entry.get("size")
    if type(size) is not int or not 0 <= size < MAX_SIZE_BYTES:
        return "has no valid size"
    if type(entry.get("frames", _NO_FRAMES)) is not list:
        return "has frames that are no list"
    if type(entry.get("addr", 0)) is not int:
        return "has no valid address"
    return None
