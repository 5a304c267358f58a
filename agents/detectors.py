"""Causes that the ledger shows by itself, whatever the source says: they explain, and propose no patch.

Each needs its own bytes: growth that has not come to rest, activations that no backward frees, free memory that the
failing request could not use, and device memory that is not torch's.
"""

from collections import defaultdict
from typing import Final

from headroom.evidence.analysis_model import DeviceAnalysis
from headroom.evidence.explain.old_blocks import WORKSPACE_BYTES
from headroom.evidence.model import StackId
from headroom.records.diagnosis import Cause
from headroom.units import MIB, format_bytes

# What other processes and the CUDA context take is a cause only when it is a good part of the device.
_OUTSIDE_SHARE: Final = 0.2
_MIN_SHARE: Final = 0.02
_MIN_BYTES: Final = MIB


def detect(device: DeviceAnalysis) -> tuple[Cause, ...]:
    """The causes, largest first."""
    growth = _growth(device)
    growing = {stack for cause in growth for stack in cause.stack_ids}
    found = [*growth, *_kept(device, growing), *_fragmentation(device), *_outside(device)]
    return tuple(sorted(found, key=lambda cause: -cause.peak_bytes))


def _growth(device: DeviceAnalysis) -> list[Cause]:
    ledger = device.ledger
    causes = []
    for growth in ledger.growth:
        use = ledger.stack(growth.stack)
        if not growth.leak or growth.allocated_bytes < _MIN_SHARE * ledger.peak.allocated_bytes:
            continue
        site = use.site
        causes.append(
            Cause(
                kind="growth",
                play="ledger",
                summary=(
                    f"{format_bytes(growth.bytes_per_tick)} more with every {growth.kind} stay allocated "
                    f"({growth.ticks} {growth.kind}s, {format_bytes(growth.allocated_bytes)} in all): "
                    "something keeps what this line makes"
                ),
                peak_bytes=growth.allocated_bytes,
                stack_ids=(growth.stack,),
                file=site.filename if site is not None else None,
                line=site.line if site is not None else None,
            )
        )
    return causes


def _kept(device: DeviceAnalysis, growing: set[str]) -> list[Cause]:
    """Activations that outlive every backward: a graph is kept, or was made for nothing."""
    ledger = device.ledger
    kept: dict[StackId, int] = defaultdict(int)
    for block in ledger.blocks:
        if (
            block.stack is not None
            and block.stack not in growing
            and block.category in ("activation", "evaluation")
            and block.requested_bytes not in WORKSPACE_BYTES
            and block.lifetime in ("persistent", "several updates")
        ):
            kept[block.stack] += block.allocated_bytes
    # The last call's own activations are on these stacks, too: they count where most of the stack is kept.
    uses = [ledger.stack(stack) for stack in kept]
    uses = [use for use in uses if 2 * kept[use.id] > use.allocated_bytes]
    sizes = {use.id: use.allocated_bytes for use in uses}
    size_bytes, blocks = sum(sizes.values()), sum(use.blocks for use in uses)
    if size_bytes < max(_MIN_SHARE * ledger.peak.allocated_bytes, _MIN_BYTES):
        return []
    ranked = sorted(sizes, key=lambda stack: (-sizes[stack], stack))
    site = ledger.stack(ranked[0]).site
    return [
        Cause(
            kind="kept_activations",
            play="ledger",
            summary=(
                f"{format_bytes(size_bytes)} of what the forward pass made ({blocks} blocks) is freed by no backward: "
                "something keeps a graph, such as collected losses or outputs, or an evaluation runs with gradients; "
                "most of it was made here"
            ),
            peak_bytes=size_bytes,
            stack_ids=tuple(ranked),
            file=site.filename if site is not None else None,
            line=site.line if site is not None else None,
        )
    ]


def _fragmentation(device: DeviceAnalysis) -> list[Cause]:
    free = device.fragmentation
    if free.request_bytes is None or free.free_bytes < free.request_bytes:
        return []
    if free.largest_usable_bytes >= free.request_bytes:
        return []
    return [
        Cause(
            kind="fragmentation",
            play="ledger",
            summary=(
                f"{format_bytes(free.free_bytes)} were free inside torch's segments, but the largest piece that the "
                f"failing request of {format_bytes(free.request_bytes)} could use has "
                f"{format_bytes(free.largest_usable_bytes)}; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may help "
                "without a change of the program"
            ),
            peak_bytes=free.unusable_bytes,
            stack_ids=(),
        )
    ]


def _outside(device: DeviceAnalysis) -> list[Cause]:
    balance = device.ledger.failure_balance or device.ledger.balance
    if balance is None or balance.non_torch_bytes is None or balance.device_total_bytes is None:
        return []
    if balance.non_torch_bytes < _OUTSIDE_SHARE * balance.device_total_bytes:
        return []
    return [
        Cause(
            kind="outside_torch",
            play="ledger",
            summary=(
                f"{format_bytes(balance.non_torch_bytes)} of the device are held outside torch's allocator: another "
                "process, or a library's own memory"
            ),
            peak_bytes=balance.non_torch_bytes,
            stack_ids=(),
        )
    ]
