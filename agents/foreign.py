"""Call sites of modules, from the stacks of a snapshot alone: for snapshots that our recorder did not make.

A stack that passes through torch's `Module.__call__` was made by a module, and the user's frame outside the outermost
such call is the line that called it. Whether gradients were on, and whether one came back, is not in a snapshot; it
shows in the lives of the blocks. What a call without gradients makes is freed before it ends, but for its result.
Activations that a backward freed were trained. So a site is taken for one that keeps a graph for nothing only where its
blocks outlive their update and no backward freed any of them.
"""

from collections import defaultdict
from typing import Final

from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.model import Frame, LiveBlock, StackId, StackUse
from headroom.records.run import CallSite

UNKNOWN_MODULE: Final = "?"
"""The class of a module that only its frames show."""

_CALL: Final = "_call_impl"
_MODULE_FILE: Final = "torch/nn/modules/module.py"


def infer_call_sites(device: DeviceAnalysis) -> tuple[CallSite, ...]:
    """Call sites on the stacks that hold bytes of the peak, in order of file and line.

    The counts say no more than whether something happened (0 or 1) or happened again (2).
    """
    by_site: dict[Frame, list[StackUse]] = defaultdict(list)
    for use in device.ledger.stacks:
        site = outermost_call(use)
        if site is not None and not use.backward:
            by_site[site].append(use)
    blocks: dict[StackId, list[LiveBlock]] = defaultdict(list)
    for block in device.ledger.blocks:
        if block.stack is not None:
            blocks[block.stack].append(block)
    sites = [
        _site(frame, [block for use in uses for block in blocks[use.id]])
        for frame, uses in by_site.items()
    ]
    return tuple(sorted(sites, key=lambda site: (site.file, site.line)))


def outermost_call(use: StackUse) -> Frame | None:
    """The user's frame that calls the outermost module of a stack."""
    own = set(use.user_frames)
    found = None
    inside = False
    for frame in use.frames:
        if frame.name == _CALL and frame.filename.replace("\\", "/").endswith(_MODULE_FILE):
            inside = True
        elif inside and frame in own:
            found, inside = frame, False
    return found


def _site(frame: Frame, blocks: list[LiveBlock]) -> CallSite:
    kept = any(block.lifetime in ("persistent", "several updates") for block in blocks)
    freed_by_backward = any(
        block.lifetime == "forward to backward" and block.lives_until is not None
        for block in blocks
    )
    # A forward whose backward the history does not show (it ran out of memory, say) is taken for training.
    trained = freed_by_backward or not kept
    return CallSite(
        file=frame.filename,
        line=frame.line,
        function=frame.name,
        module=UNKNOWN_MODULE,
        calls=2,
        grad_calls=1 if trained or kept else 0,
        eval_calls=0,
        reached_calls=1 if trained else 0,
        rows=0,
    )
