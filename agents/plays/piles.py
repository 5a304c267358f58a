"""Memory at the peak that has outlived the update or the call it was made in, stack by stack."""

import ast
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from headroom.agents.carry import COLLECTING
from headroom.agents.plays.base import forward_stacks, is_at, sites_of
from headroom.agents.program import Program, calls_on
from headroom.agents.protocol import Evidence
from headroom.agents.syntax import last_name, own_nodes
from headroom.evidence.model import Frame, LiveBlock, StackId, StackUse, Tick

# Calls whose result is new memory without a graph.
_MAKING = frozenset(
    {
        "cuda",
        "to",
        "zeros",
        "ones",
        "empty",
        "full",
        "rand",
        "randn",
        "randint",
        "randperm",
        "tensor",
        "arange",
    }
    | {"from_numpy", "as_tensor", "load", "eye", "linspace"}
)
_OPTIMIZER_FOLDER = "torch/optim/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pile:
    """Blocks of one stack that are older than the present tick.

    `per_tick_bytes` of them would be there even if nothing piled up. `graph` says whether modules on the stack ran
    with gradients; None when no module call is on it, and nothing else tells.
    """

    stack: StackUse
    size_bytes: int
    per_tick_bytes: int
    graph: bool | None

    def is_inside_call(self, frame: Frame, sites: Iterable[Frame]) -> bool:
        """Whether a frame of the stack runs as part of an outermost module call."""
        frames = self.stack.user_frames
        outermost = max((at for at, other in enumerate(frames) if other in sites), default=-1)
        return frames.index(frame) < outermost


def find_piles(evidence: Evidence, program: Program) -> tuple[Pile, ...]:
    """What has piled up, largest first.

    That is what the ledger calls growth; without any growth, what the forward pass of an earlier update or call left
    behind.
    """
    forward = {stack.id: stack for stack in forward_stacks(evidence.ledger)}
    sizes: dict[StackId, tuple[int, int]] = {}
    for growth in evidence.ledger.growth:
        if growth.stack in forward and not _is_optimizer(forward[growth.stack]):
            known = sizes.get(growth.stack, (0, 0))
            sizes[growth.stack] = max(known, (growth.allocated_bytes, growth.bytes_per_tick))
    if not sizes:
        sizes = _left_behind(evidence, forward)
    piles = [
        Pile(
            stack=forward[stack],
            size_bytes=size_bytes,
            per_tick_bytes=per_tick_bytes,
            graph=_has_graph(forward[stack], evidence, program),
        )
        for stack, (size_bytes, per_tick_bytes) in sizes.items()
    ]
    return tuple(sorted(piles, key=lambda pile: -pile.size_bytes))


def _left_behind(
    evidence: Evidence, forward: dict[StackId, StackUse]
) -> dict[StackId, tuple[int, int]]:
    """Bytes of blocks from an earlier tick, for stacks that run through a module call."""
    now = evidence.ledger.peak.tick
    old: dict[StackId, int] = defaultdict(int)
    for block in evidence.ledger.blocks:
        stack = forward.get(block.stack) if block.stack is not None else None
        if stack is None or not _is_older(block, now) or not sites_of(stack, evidence.call_sites):
            continue
        if not _is_optimizer(stack):
            old[stack.id] += block.allocated_bytes
    return {stack: (size_bytes, 0) for stack, size_bytes in old.items()}


def _is_older(block: LiveBlock, now: Tick) -> bool:
    # What is older than the first call is the model itself.
    born = block.born
    return born is not None and born.call >= 1 and (born.update, born.call) < (now.update, now.call)


def _is_optimizer(stack: StackUse) -> bool:
    return any(_OPTIMIZER_FOLDER in frame.filename for frame in stack.frames)


def _has_graph(stack: StackUse, evidence: Evidence, program: Program) -> bool | None:
    sites = sites_of(stack, evidence.call_sites)
    if sites:
        return any(site.grad_calls > 0 for site in sites)
    innermost = stack.user_frames[0]
    parsed = program.files.get(innermost.filename)
    if parsed is None:
        return None
    scope = parsed.scope_at(innermost.line, innermost.name)
    calls = calls_on(own_nodes(scope), innermost.line)
    names = {last_name(call.func) for call in calls if isinstance(call, ast.Call)} - COLLECTING
    if "state_dict" in names:
        # A state dictionary holds detached tensors.
        return False
    return False if names and names <= _MAKING | {"device"} else None


def site_frames(evidence: Evidence) -> frozenset[Frame]:
    """The frames, on any stack of the peak, that stand at a call site."""
    frames = (frame for stack in evidence.ledger.stacks for frame in stack.user_frames)
    return frozenset(
        frame for frame in frames if any(is_at(frame, site) for site in evidence.call_sites)
    )
