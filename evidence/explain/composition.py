"""The peak by category, module, phase and lifetime, each list closing to the peak."""

from collections.abc import Callable, Iterable
from typing import Final

from headroom.evidence.account.account import Account
from headroom.evidence.analysis_model import Composition, Share
from headroom.evidence.explain.course import Course
from headroom.evidence.model import Ledger, LiveBlock, Phase

OLDER: Final = "before recording"
"""Where a phase or a module would be told if the block were not older than the history."""
NO_MODULE: Final = "no module"
NO_PHASE: Final = "not told"

# Names of these end in the parameter's own name, which is no part of its module's path.
_OF_MODULES: Final = frozenset({"parameter", "gradient", "buffer"})


def compose(account: Account, course: Course, ledger: Ledger) -> Composition:
    """Divide the peak.

    A phase is inferred where no label tells it; modules are told by the recorder alone.
    """
    phases = _phases(account, course)
    blocks = ledger.blocks
    return Composition(
        categories=_shares(blocks, lambda block: (block.category, block.inferred)),
        modules=_shares(blocks, lambda block: (module_of(block), False)),
        phases=_shares(blocks, lambda block: _phase_of(block, phases)),
        lifetimes=_shares(blocks, lambda block: (block.lifetime, True)),
    )


def module_of(block: LiveBlock) -> str:
    """The path of the module whose call allocated a block or whose parameter it is; NO_MODULE or OLDER without."""
    if block.module:
        return block.module
    if block.category in _OF_MODULES and "." in block.name:
        return block.name.rpartition(".")[0]
    return OLDER if block.born is None else NO_MODULE


def _phases(account: Account, course: Course) -> dict[int, Phase | None]:
    """Phases of the blocks at the peak by address: each address holds one of them."""
    lives = account.replay.lives
    rows = account.replay.rows_allocated(account.replay.peak_entry)
    return {lives.address[row]: course.phase_at(lives.born[row]) for row in rows}


def _phase_of(block: LiveBlock, phases: dict[int, Phase | None]) -> tuple[str, bool]:
    if block.phase is not None:
        return block.phase, False
    if block.born is None:
        return OLDER, False
    phase = phases.get(block.address)
    return (NO_PHASE, False) if phase is None else (phase, True)


def _shares(
    blocks: Iterable[LiveBlock], heading: Callable[[LiveBlock], tuple[str, bool]]
) -> tuple[Share, ...]:
    sums: dict[str, list[int]] = {}
    for block in blocks:
        name, inferred = heading(block)
        parts = sums.setdefault(name, [0, 0, 0])
        parts[0] += block.allocated_bytes
        parts[1] += 1
        parts[2] += block.allocated_bytes if inferred else 0
    shares = (
        Share(name=name, allocated_bytes=size, blocks=count, inferred_bytes=inferred)
        for name, (size, count, inferred) in sums.items()
    )
    return tuple(sorted(shares, key=lambda share: (-share.allocated_bytes, share.name)))
