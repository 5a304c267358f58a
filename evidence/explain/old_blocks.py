"""Blocks of which the history shows little, told by their sizes: cuBLAS workspaces, and a model older than it."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from headroom.evidence.account.account import Account
from headroom.evidence.account.lives import BEFORE
from headroom.evidence.explain.course import Course
from headroom.evidence.explain.origins import Origin
from headroom.evidence.model import Category
from headroom.evidence.reading.history import NO_STACK, Action
from headroom.units import KIB, MIB

# What cuBLAS gets once for each handle and stream, and cuBLASLt beside it; from devices of capability 9 on, and before.
# Source: `parseChosenWorkspaceSize` and `_parseChosenWorkspaceSize` in aten/src/ATen/cuda/CublasHandlePool.cpp.
_CUBLAS_BYTES: Final = frozenset({32 * MIB, 8 * MIB + 128 * KIB})
_CUBLASLT_BYTES: Final = frozenset({32 * MIB, MIB})
WORKSPACE_BYTES: Final = _CUBLAS_BYTES | _CUBLASLT_BYTES

# Parameter, two moments and a maximum of the second: no usual optimizer keeps more in the parameter's own size.
_MOST_COPIES: Final = 4
# A backward has no stack, or the forward line that the recorder found for it.
_UNSEEN: Final = frozenset({Origin.ABSENT, Origin.BACKWARD})
_ALLOC: Final = int(Action.ALLOC)


def find_workspaces(
    account: Account, course: Course, is_parameter_size: Callable[[int], bool]
) -> frozenset[int]:
    """Rows of cuBLAS workspaces that no C++ frame names.

    They are never freed and have one of the known sizes. In a forward they were allocated right after the first result
    of their stack, since the first matrix product asks for them, or before the history, once. In a backward,
    which shows no stack of its own, the size must not be a parameter's.

    Args:
        account: The device.
        course: Its course.
        is_parameter_size: Whether a row is as large as a parameter.
    """
    lives, stacks, end = account.replay.lives, account.owners.stacks, len(account.replay.history)
    sized = [
        row
        for row in lives.final
        if lives.requested_bytes[row] in WORKSPACE_BYTES and lives.freed[row] >= end
    ]
    alike = Counter((stacks[row], lives.requested_bytes[row]) for row in sized)
    first = _first_entries(account, {stacks[row] for row in sized}) if sized else {}
    found: set[int] = set()
    for row in sized:
        born, stack, requested = lives.born[row], stacks[row], lives.requested_bytes[row]
        origin = course.origins[stack]
        if origin is Origin.FORWARD and born == BEFORE:
            asked_once = alike[(stack, requested)] == 1
        elif origin is Origin.FORWARD:
            asked_once = _follows(account, born, first[stack])
        else:
            unseen = origin in _UNSEEN and course.phase_at(born) == "backward"
            asked_once = unseen and requested in _CUBLAS_BYTES and not is_parameter_size(row)
        if asked_once:
            found.add(row)
    return frozenset(found)


def _first_entries(account: Account, wanted: set[int]) -> dict[int, int]:
    """The first allocation of each of some stacks."""
    history = account.replay.history
    first: dict[int, int] = {}
    for entry, stack in enumerate(history.stacks):
        if stack in wanted and stack not in first and history.actions[entry] == _ALLOC:
            first[stack] = entry
    return first


def _follows(account: Account, born: int, first: int) -> bool:
    """Whether the allocation before this one is its stack's first, or a workspace right behind that."""
    history, entry = account.replay.history, born
    # The result, cuBLAS's own workspace, then cuBLASLt's.
    for _ in range(2):
        entry = history.actions.rfind(_ALLOC, 0, entry)
        if entry == first:
            return True
        if entry < first or history.stacks[entry] != history.stacks[born]:
            return False
        if history.sizes_bytes[entry] not in WORKSPACE_BYTES:
            return False
    return False


def old_categories(account: Account, gradients: Iterable[int]) -> dict[int, Category]:
    """Categories of blocks older than the history and without a stack, by the sizes of one update's gradients.

    Every gradient has a parameter of its size, and an optimizer keeps its state in that size too. Where the old blocks
    hold every size as many times as there are gradients of it, or a multiple, one each is a parameter and the others
    are the optimizer's. Which is which is not known, and does not matter to any sum. What remains and has the size of a
    workspace is one. Where one size does not fit, only cuBLAS's workspaces are told.

    Args:
        account: The device.
        gradients: Rows of the gradients of one whole update.
    """
    lives, end = account.replay.lives, len(account.replay.history)
    sizes = lives.requested_bytes
    old: dict[int, list[int]] = {}
    for row in sorted(lives.final, key=lives.address.__getitem__):
        unknown = lives.born[row] == BEFORE and account.owners.stacks[row] == NO_STACK
        if unknown and lives.freed[row] >= end and row not in account.names:
            old.setdefault(sizes[row], []).append(row)
    wanted = Counter(sizes[row] for row in gradients)
    copies = min((len(old.get(size, ())) // count for size, count in wanted.items()), default=0)
    if copies > _MOST_COPIES:
        copies = 0
    found: dict[int, Category] = {}
    for size, rows in old.items():
        count = wanted.get(size, 0)
        for place, row in enumerate(rows):
            if copies and place < count:
                found[row] = "parameter"
            elif place < copies * count:
                found[row] = "optimizer_state"
            elif size in (WORKSPACE_BYTES if copies else _CUBLAS_BYTES - wanted.keys()):
                found[row] = "workspace"
    return found


def has_old_blocks(account: Account) -> bool:
    """Whether a block without a stack is older than the history and never freed."""
    lives, end = account.replay.lives, len(account.replay.history)
    stacks = account.owners.stacks
    return any(
        lives.born[row] == BEFORE and stacks[row] == NO_STACK and lives.freed[row] >= end
        for row in lives.final
    )
