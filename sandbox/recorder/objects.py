"""What Python objects hold, read without running code of the program's: no property, no `__getattr__` or `__iter__`."""

import _thread
import collections
import functools
import gc
from collections.abc import Iterator
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CellType,
    CodeType,
    CoroutineType,
    FrameType,
    FunctionType,
    GeneratorType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, cast

from .stacks import is_library
from .variables import contents, variables

ITEMS_READ = 10_000
"""Longer containers are not looked into: data sets, vocabularies."""
ATTRIBUTE, CONTAINER, CLOSURE, VARIABLE = "attribute", "container", "closure", "variable"
Child = tuple[Any, str, str]
"""What is held, what comes behind the holder's name, and how it is held."""

ATOMS: frozenset[type] = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, bytearray, range, slice),
        *(type(...), type(NotImplemented), ModuleType, CodeType, FrameType, BuiltinFunctionType),
    }
)
"""Types whose objects hold nothing that is looked for, or are looked at in another way."""
_ATOM_IDS = frozenset(map(id, ATOMS))
_PLAIN_KEYS = frozenset(map(id, (str, int, float, bool, type(None), bytes)))
_FRAMES = {
    id(GeneratorType): "gi_frame",
    id(CoroutineType): "cr_frame",
    id(AsyncGeneratorType): "ag_frame",
}
_PASSED_ON = ("builtins", "itertools", "_collections", "_functools")


class Kind:
    """A class, asked once: its bases by id, and how its objects are read."""

    __slots__ = ("bases", "dict_getter", "frame", "is_atom", "kind", "passes_on", "read", "slots")

    def __init__(self, kind: type) -> None:
        mro = type.__dict__["__mro__"].__get__(kind)
        self.kind, self.bases = kind, frozenset(map(id, mro))
        self.is_atom = id(kind) in _ATOM_IDS
        self.read = next((read for base, read in _READERS if id(base) in self.bases), None)
        self.frame = _FRAMES.get(id(kind))
        self.dict_getter = None if id(type) in self.bases else _dict_getter(mro)
        self.slots = _slots(mro)
        of_c = type.__dict__["__module__"].__get__(kind)
        self.passes_on = self.read is None and self.frame is None and of_c in _PASSED_ON


class Kinds:
    """Classes by id, for the time of one walk: no class is kept alive, and none is compared or hashed."""

    def __init__(self) -> None:
        self._by_id: dict[int, Kind] = {}

    def of(self, value: Any) -> Kind:
        """What is known of an object's class."""
        kind = type(value)
        known = self._by_id.get(id(kind))
        if known is None:
            known = self._by_id[id(kind)] = Kind(kind)
        return known


def children(value: Any, kind: Kind) -> "Iterator[Child]":
    """What an object holds, with the words that lead to it."""
    if kind.read is not None:
        yield from kind.read(value)
    if kind.frame is not None:
        frame = getattr(value, kind.frame)
        # Another thread may go on with a generator while its frame is read.
        stands = _thread._count() == 0
        for name, held in variables(frame, stands=stands) if frame is not None else ():
            yield held, f".<frame> {name}", VARIABLE
    yield from _attributes(value, kind)


def _sequence(kind: Any) -> Any:
    def items(value: Any) -> "Iterator[Child]":
        for index, held in enumerate(_items(kind, value)):
            yield held, f"[{index}]", CONTAINER

    return items


def _set(kind: Any) -> Any:
    def items(value: Any) -> "Iterator[Child]":
        for held in _items(kind, value):
            yield held, "{...}", CONTAINER

    return items


def _items(kind: Any, value: Any) -> "list[Any]":
    return list(kind.__iter__(value)) if kind.__len__(value) <= ITEMS_READ else []


def _dict(value: "dict[Any, Any]") -> "Iterator[Child]":
    for key, held in pairs(value):
        if id(type(key)) not in _ATOM_IDS:
            yield key, ".keys()", CONTAINER
        yield held, f"[{shown_key(key)}]", CONTAINER


def _function(value: FunctionType) -> "Iterator[Child]":
    for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=False):
        yield contents(cell), f".<closure> {name}", CLOSURE
    for held in value.__defaults__ or ():
        yield held, ".<default>", CLOSURE
    for name, held in (value.__kwdefaults__ or {}).items():
        yield held, f".<default> {name}", CLOSURE


def _method(value: MethodType) -> "Iterator[Child]":
    yield value.__self__, ".__self__", ATTRIBUTE
    yield value.__func__, "", ATTRIBUTE


def _partial(value: Any) -> "Iterator[Child]":
    function, args, keywords, _ = cast(Any, functools.partial.__reduce__(value)[2])
    yield function, ".func", ATTRIBUTE
    for index, held in enumerate(args):
        yield held, f".args[{index}]", CLOSURE
    for name, held in (keywords or {}).items():
        yield held, f".keywords[{name!r}]", CLOSURE


def _cell(value: CellType) -> "Iterator[Child]":
    yield contents(value), ".<cell>", CLOSURE


def _class(value: type) -> "Iterator[Child]":
    if type.__dict__["__module__"].__get__(value) == "builtins" or _of_library(value):
        return
    for name, held in list(type.__dict__["__dict__"].__get__(value).items()):
        if not name.startswith("__"):
            yield held, f".{name}", ATTRIBUTE


def _of_library(kind: type) -> bool:
    """Whether a class comes from an installed package: a function of its own tells."""
    for held in type.__dict__["__dict__"].__get__(kind).values():
        if type(held) is FunctionType:
            return is_library(held.__code__.co_filename)
    return False


_READERS: "tuple[tuple[type, Any], ...]" = (
    (list, _sequence(list)),
    (tuple, _sequence(tuple)),
    (dict, _dict),
    (collections.deque, _sequence(collections.deque)),
    (set, _set(set)),
    (frozenset, _set(frozenset)),
    (FunctionType, _function),
    (MethodType, _method),
    (functools.partial, _partial),
    (CellType, _cell),
    (type, _class),
)


def _attributes(value: Any, kind: Kind) -> "Iterator[Child]":
    """Instance dictionary and slots; what C types hold has no name."""
    held = instance_dict(value, kind)
    for name, item in pairs(held) if held is not None else ():
        yield item, f".{name}", ATTRIBUTE
    for name, slot in kind.slots:
        try:
            item = slot.__get__(value)
        except AttributeError:
            continue
        yield item, f".{name}", ATTRIBUTE
    if kind.passes_on:
        for item in gc.get_referents(value):
            # Iterators have tuples with gaps (`zip_longest`), which only the collector's own way through them bears.
            if type(item) is not tuple:
                yield item, ".<held>", CONTAINER
            elif tuple.__len__(item) <= ITEMS_READ:
                for inner in gc.get_referents(item):
                    yield inner, ".<held>", CONTAINER


def pairs(space: "dict[Any, Any]") -> "list[tuple[Any, Any]]":
    """A dictionary's items, copied, unless there are too many."""
    return list(dict.items(space)) if dict.__len__(space) <= ITEMS_READ else []


def instance_dict(value: Any, kind: Kind) -> "dict[str, Any] | None":
    """An object's own dictionary, unless its class made an attribute of that name itself."""
    held = kind.dict_getter.__get__(value) if kind.dict_getter is not None else None
    return held if type(held) is dict else None


def _dict_getter(mro: "tuple[type, ...]") -> Any:
    for base in mro:
        found = type.__dict__["__dict__"].__get__(base).get("__dict__")
        if found is not None:
            return found if type(found) is GetSetDescriptorType else None
    return None


def _slots(mro: "tuple[type, ...]") -> "tuple[tuple[str, Any], ...]":
    """The slots of a class written in Python."""
    return tuple(
        (name, member)
        for base in mro
        for name, member in type.__dict__["__dict__"].__get__(base).items()
        if type(member) is MemberDescriptorType and not name.startswith("__")
    )


def shown_key(key: Any) -> str:
    """A dictionary's key as it is written, if it is of a plain type."""
    if id(type(key)) in _PLAIN_KEYS:
        return repr(key)[:80]
    if type(key) is tuple and len(key) < 6:
        return "(" + ", ".join(shown_key(part) for part in key) + ")"
    return f"<{type(key).__name__}>"
