"""Tensors without a graph that pile up on the device: move them to the host where they are stored."""

from headroom.agents.plays.base import Finding, Play
from headroom.agents.plays.keeping import findings_of, host_companions, patches_of
from headroom.agents.plays.piles import find_piles
from headroom.agents.plays.suspects import find_suspects, may_move
from headroom.agents.program import read_program
from headroom.agents.protocol import Evidence
from headroom.records.diagnosis import Numerics


class CollectedTensors(Play):
    """Predictions, targets or features of many batches, collected on the device.

    Their host copies hold the same values; what is computed from them later is computed on the host.
    """

    name = "collected_tensors"
    numerics: Numerics = "exact"

    def findings(self, evidence: Evidence) -> tuple[Finding, ...]:
        """One finding for each function whose statements may hold what has piled up."""
        if not evidence.ledger.blocks and not evidence.ledger.growth:
            return ()
        program = read_program(evidence)
        piles = find_piles(evidence, program)
        with_graph = [pile for pile in piles if pile.graph]
        # What still has a graph is for the play that detaches: the graph holds more than the value.
        graphs = {
            value
            for suspect in find_suspects(program, evidence, with_graph, "graph")
            for value in suspect.holder.values
        }
        suspects = [
            suspect
            for suspect in find_suspects(program, evidence, piles, "memory")
            if not graphs.intersection(suspect.holder.values) and may_move(program, suspect)
        ]
        return findings_of(
            program,
            evidence,
            suspects,
            play=self.name,
            kind="collected_tensors",
            what="on the device",
            call=".detach().cpu()",
            patches=lambda members: patches_of(
                program, members, ".detach().cpu()", host_companions(program)
            ),
        )
