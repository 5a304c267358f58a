"""Tensors that are kept together with their graph: detach them where they are stored."""

from collections.abc import Sequence

from headroom.agents.plays.base import Finding, Play
from headroom.agents.plays.keeping import findings_of, host_companions, patches_of
from headroom.agents.plays.piles import find_piles
from headroom.agents.plays.suspects import (
    Suspect,
    find_suspects,
    is_needed,
    may_move,
)
from headroom.agents.program import Program, read_program
from headroom.agents.protocol import Evidence
from headroom.records.diagnosis import Numerics
from headroom.records.patch import Patch


class RetainedGraph(Play):
    """Losses, outputs or features that pile up with everything their backward pass would need.

    A value that may still flow into a backward pass is left alone, hidden states carried across iterations included:
    cutting those changes the method.
    """

    name = "retained_graph"
    numerics: Numerics = "exact"

    def findings(self, evidence: Evidence) -> tuple[Finding, ...]:
        """One finding for each function whose statements may hold what has piled up."""
        if not evidence.ledger.blocks and not evidence.ledger.growth:
            return ()
        program = read_program(evidence)
        piles = [pile for pile in find_piles(evidence, program) if pile.graph is not False]
        suspects = [
            suspect
            for suspect in find_suspects(program, evidence, piles, "graph")
            if not is_needed(program, suspect.holder, "graph")
        ]
        return findings_of(
            program,
            evidence,
            suspects,
            play=self.name,
            kind="retained_graph",
            what="with the graph behind them",
            call=".detach()",
            patches=lambda members: (
                *patches_of(program, members, ".detach()"),
                *_last_resort(program, members),
            ),
        )


def _last_resort(program: Program, members: Sequence[Suspect]) -> tuple[Patch, ...]:
    """Where detaching saves nothing, a backward pass had freed the graph, and the values themselves pile up."""
    movable = [member for member in members if may_move(program, member)]
    return patches_of(program, movable, ".detach().cpu()", host_companions(program))[-1:]
