"""From piles of memory to the statements that may hold them: flow on the way, and what must not be cut."""

import ast
from collections import defaultdict
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace

from headroom.agents.calls import Mode, arguments, hands_on
from headroom.agents.carry import Seeds
from headroom.agents.flow import Flow
from headroom.agents.index import Place
from headroom.agents.plays.base import is_large
from headroom.agents.plays.holders import Holder, find_holders
from headroom.agents.plays.piles import Pile, site_frames
from headroom.agents.program import Program
from headroom.agents.protocol import Evidence
from headroom.agents.syntax import Scope, last_name, parameters
from headroom.evidence.model import Frame

# A program with more candidates than this is one that the flow does not understand.
_MAX_SUSPECTS = 16
_FORWARD_HOOKS = frozenset(
    {"register_forward_hook", "register_forward_pre_hook", "register_module_forward_hook"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspect:
    """A holder, and the piles whose memory may be in it."""

    holder: Holder
    piles: tuple[Pile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its piles."""
        return sum(pile.size_bytes for pile in self.piles)

    @property
    def saving_bytes(self) -> int:
        """Bytes beyond what one update or call needs anyway."""
        return sum(pile.size_bytes - pile.per_tick_bytes for pile in self.piles)

    @property
    def rank(self) -> tuple[int, bool, str, int]:
        """Sort key: most bytes first; an attribute holds one value at a time, and so comes last."""
        holder = self.holder
        path = holder.place.parsed.path
        return (-self.size_bytes, holder.kind == "attribute", path, holder.line)


def find_suspects(
    program: Program, evidence: Evidence, piles: Sequence[Pile], mode: Mode
) -> tuple[Suspect, ...]:
    """The statements that may hold the piles, the most probable first, without those whose piles are small."""
    related: dict[tuple[ast.AST, ...], dict[str, Pile]] = defaultdict(dict)
    holders: dict[tuple[ast.AST, ...], Holder] = {}
    for holder, pile in _holders(program, evidence, piles, mode):
        holders.setdefault(holder.values, holder)
        related[holder.values][pile.stack.id] = pile
    found = [
        Suspect(holder=holder, piles=tuple(related[values].values()))
        for values, holder in holders.items()
    ]
    found = _link_returns(found)
    large = [suspect for suspect in found if is_large(evidence.ledger, suspect.size_bytes)]
    return tuple(sorted(large, key=lambda suspect: suspect.rank)[:_MAX_SUSPECTS])


def _link_returns(found: Sequence[Suspect]) -> list[Suspect]:
    """Go from `outputs.append(step(batch))` to the `return {...}` in `step`, where the tensors have names."""
    returned = {item.holder.place.name for item in found if item.holder.kind == "returned"}
    linked: list[Suspect] = []
    kept: set[str] = set()
    for suspect in found:
        if suspect.holder.kind == "returned":
            continue
        makers = {value: _maker(value) for value in suspect.holder.values}
        kept |= returned.intersection(makers.values())
        rest = tuple(value for value, maker in makers.items() if maker not in returned)
        if rest:
            linked.append(replace(suspect, holder=replace(suspect.holder, values=rest)))
    returns = (
        item for item in found if item.holder.kind == "returned" and item.holder.place.name in kept
    )
    return [*linked, *returns]


def _maker(value: ast.expr) -> str:
    return last_name(value.func) if isinstance(value, ast.Call) else ""


def _holders(
    program: Program, evidence: Evidence, piles: Sequence[Pile], mode: Mode
) -> Iterator[tuple[Holder, Pile]]:
    sites = site_frames(evidence)
    through: dict[tuple[Frame, bool], list[Pile]] = defaultdict(list)
    for pile in piles:
        for frame in pile.stack.user_frames:
            through[frame, pile.is_inside_call(frame, sites)].append(pile)
    for (frame, inside), members in through.items():
        parsed = program.files.get(frame.filename)
        if parsed is None:
            continue
        start = Place(parsed, parsed.scope_at(frame.line, frame.name))
        seeds = Seeds(lines=frozenset({frame.line}))
        for holder in _reached_holders(program, start, seeds, mode, inside=inside):
            yield from ((holder, pile) for pile in members)
    from_modules = [pile for pile in piles if sites.intersection(pile.stack.user_frames)]
    if from_modules:
        for start, seeds in _hooks(program):
            for holder in _reached_holders(program, start, seeds, mode, inside=False):
                yield from ((holder, pile) for pile in from_modules)


def _reached_holders(
    program: Program, start: Place, seeds: Seeds, mode: Mode, *, inside: bool
) -> Iterator[Holder]:
    for place, found in program.destination(start, seeds, mode).visited.items():
        for holder in find_holders(place, found.tainted, inside_call=inside and place == start):
            # A method of the program's own, `meter.update(loss)`, holds nothing itself: its body is visited, too.
            if not (isinstance(holder.node, ast.Call) and program.defines(holder.node.func)):
                yield holder


def _hooks(program: Program) -> Iterator[tuple[Place, Seeds]]:
    """Functions registered as forward hooks, with the parameters that take inputs and outputs."""
    for parsed in program.files.values():
        for node in parsed.parents:
            if isinstance(node, ast.Call) and last_name(node.func) in _FORWARD_HOOKS and node.args:
                for place in _hook_places(program, Place(parsed, parsed.tree), node.args[0]):
                    names = [
                        name for name in parameters(place.scope) if name not in {"self", "cls"}
                    ]
                    # The first parameter is the module.
                    yield place, Seeds(parameters=frozenset(names[1:]))


def _hook_places(program: Program, here: Place, node: ast.expr) -> Iterator[Place]:
    """The functions that an argument may stand for: by name, a lambda, a partial, or what a factory returns."""
    if isinstance(node, ast.Lambda):
        yield Place(here.parsed, node)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield from program.functions.get(last_name(node), [])
    elif isinstance(node, ast.Call):
        for argument in arguments(node):
            yield from _hook_places(program, here, argument)
        for factory in program.functions.get(last_name(node.func), []):
            for inner in ast.walk(factory.scope):
                if isinstance(inner, Scope) and inner is not factory.scope:
                    yield Place(factory.parsed, inner)


def is_needed(program: Program, holder: Holder, mode: Mode) -> bool:
    """Whether what the holder keeps may flow into a backward pass, so that cutting it would change the training.

    What is returned to a caller out of sight, as from `forward`, may.
    """
    return program.reaches_backward(holder.place, Seeds(nodes=frozenset(holder.values)), mode)


class _Everything(Container[ast.AST]):
    def __contains__(self, _item: object) -> bool:
        return True


def companions(program: Program, suspect: Suspect, *, far: bool) -> tuple[Holder, ...]:
    """Other containers of the same function that later meet the suspect's in one computation.

    When one of them moves to the host, so must the others: torch computes on one device at a time. `far` looks for
    the meeting in other functions, too, where containers that were returned together cannot be told apart.
    """
    holder = suspect.holder
    mine = _met(program, holder, far=far)
    others = find_holders(holder.place, _Everything(), inside_call=False)
    return tuple(
        other
        for other in others
        if other.kind == "collects"
        and other.receiver != holder.receiver
        and _meet(mine, _met(program, other, far=far))
    )


def _met(program: Program, holder: Holder, *, far: bool) -> set[ast.AST]:
    seeds = Seeds(nodes=frozenset(holder.values))
    if not far:
        return Flow(holder.place.parsed, holder.place.scope, seeds, "value").run().tainted
    visited = program.destination(holder.place, seeds, "value").visited
    return {node for found in visited.values() for node in found.tainted}


def _meet(first: set[ast.AST], second: set[ast.AST]) -> bool:
    joined = first & second
    return any(
        isinstance(node, ast.BinOp | ast.Compare)
        or (isinstance(node, ast.Call) and not hands_on(node))
        for node in joined
    )


def may_move(program: Program, suspect: Suspect) -> bool:
    """Whether what a suspect keeps may live on the host: it piles up, and no training draws from it."""
    return _grows(suspect.holder) and not is_needed(program, suspect.holder, "value")


def _grows(holder: Holder) -> bool:
    """A running total stays as large as one value; a list does not, nor a concatenation that starts from nothing."""
    if holder.kind != "accumulates":
        return True
    value = getattr(holder.node, "value", None)
    if isinstance(value, ast.BinOp):
        return any(isinstance(side, ast.List | ast.Tuple) for side in (value.left, value.right))
    listed = ast.List | ast.Tuple | ast.ListComp
    return isinstance(
        value, listed if isinstance(holder.node, ast.AugAssign) else listed | ast.IfExp
    )
