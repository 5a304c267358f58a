"""The agent without a model: ranking, what was tried, and what fills the peak."""

from typing import Any

import pytest

from headroom.agents.edits import apply_patch, patch_between
from headroom.agents.playbook import Playbook, same_edits
from headroom.agents.protocol import Agent
from headroom.agents.text import source_text
from headroom.records.diagnosis import Candidate, Diagnosis
from headroom.records.trial import Trial, Verdict

TWO_CAUSES = """
 |import torch
 |
 |def train(model, loader, opt):
 |    for x in loader:
 |        loss = model(x).mean()  #@train
 |        loss.backward()
 |        opt.step()
 |
 |def evaluate(model, loader):
 |    for x in loader:
 |        print(model(x).mean().item())  #@call
 |
 |def probe(model, loader):
 |    kept = []
 |    for x in loader:
 |        out = model(x)  #@probe
 |        kept.append(out)
 |    return len(kept)
 |
 |train(model, loader, opt)
 |evaluate(model, loader)  #@main
 |probe(model, loader)  #@other
"""


def evidence_of(writer: Any, first_line: str = "") -> Any:
    head = f"\n |{first_line}\n |import torch\n" if first_line else "\n |import torch\n"
    program = writer.read(TWO_CAUSES.replace("\n |import torch\n", head))
    sites = [
        writer.site(program, "train", reached_calls=8),
        writer.site(program, "call", eval_calls=8),
        writer.site(program, "probe"),
    ]
    stacks = [
        writer.Stack(["call", "main"], mib=100),
        writer.Stack(["probe", "other"], mib=600, ticks=3),
    ]
    return writer.evidence(program, sites, stacks)


def trial(candidate: Candidate) -> Trial:
    verdict = Verdict(
        word="rejected", target_met=False, equivalence="unproven", kept=False, why="no gain"
    )
    return Trial(round=1, candidate=candidate, verdict=verdict)


def propose(evidence: Any, tried: tuple[Trial, ...] = ()) -> tuple[Candidate, ...]:
    playbook: Agent = Playbook()
    return playbook.propose(evidence, playbook.diagnose(evidence), tried)


def test_causes_come_largest_first_and_cite_the_ledger(writer: Any) -> None:
    evidence = evidence_of(writer)
    diagnosis = Playbook().diagnose(evidence)
    assert diagnosis.agent == "playbook"
    sizes = [cause.peak_bytes for cause in diagnosis.causes]
    assert sizes == sorted(sizes, reverse=True)
    by_id = {stack.id: stack.allocated_bytes for stack in evidence.ledger.stacks}
    for cause in diagnosis.causes:
        assert cause.peak_bytes == sum(by_id[name] for name in cause.stack_ids)
        assert cause.file == writer.path


def test_candidates_come_by_expected_saving(writer: Any) -> None:
    candidates = propose(evidence_of(writer))
    savings = [candidate.expected_saving_bytes for candidate in candidates]
    assert savings == sorted(savings, reverse=True)
    assert candidates[0].cause.peak_bytes == 600 << 20
    assert {candidate.numerics for candidate in candidates} == {"exact"}
    assert {candidate.play for candidate in candidates} == {"no_grad", "retained_graph"}


def test_what_was_tried_is_not_proposed_again(writer: Any) -> None:
    evidence = evidence_of(writer)
    first, *rest = propose(evidence)
    assert propose(evidence, (trial(first),)) == tuple(rest)
    everything = tuple(trial(candidate) for candidate in (first, *rest))
    assert propose(evidence, everything) == ()


def test_what_was_tried_is_known_again_after_lines_have_moved(writer: Any) -> None:
    tried = tuple(trial(candidate) for candidate in propose(evidence_of(writer)))
    later = evidence_of(writer, first_line="# A comment that another patch added.")
    assert propose(later) != ()
    assert propose(later, tried) == ()


def test_equal_lines_at_another_place_are_another_edit() -> None:
    text = b"def f(x):\n    pass\n\nclass A:\n    def f(x):\n        pass\n\nclass B:\n    def f(x):\n        pass\n"
    lines = text.split(b"\n")

    def decorated(at: int) -> Any:
        after = b"\n".join([*lines[:at], b"    @g", *lines[at:]])
        return patch_between({"/a.py": text}, {"/a.py": after}, title="", reason="")

    assert same_edits(decorated(4), decorated(4))
    assert not same_edits(decorated(4), decorated(8))


def test_only_causes_of_the_diagnosis_are_worked_on(writer: Any) -> None:
    evidence = evidence_of(writer)
    diagnosis = Playbook().diagnose(evidence)
    only = Diagnosis(
        agent="playbook",
        causes=tuple(cause for cause in diagnosis.causes if cause.play == "retained_graph"),
        largest="",
    )
    candidates = Playbook().propose(evidence, only, ())
    assert candidates
    assert {candidate.play for candidate in candidates} == {"retained_graph"}


def test_a_diagnosis_survives_its_record(writer: Any) -> None:
    evidence = evidence_of(writer)
    diagnosis = Playbook().diagnose(evidence)
    again = Diagnosis.from_json(diagnosis.to_json())
    assert Playbook().propose(evidence, again, ()) == Playbook().propose(evidence, diagnosis, ())


def test_every_candidate_applies(writer: Any) -> None:
    evidence = evidence_of(writer)
    for candidate in propose(evidence):
        assert apply_patch(candidate.patch, evidence.files()).files[writer.path]


def test_evaluations_are_guarded_together_when_one_alone_is_not_enough(writer: Any) -> None:
    candidates = [item for item in propose(evidence_of(writer)) if item.play == "no_grad"]
    guards = [
        sum("@torch.no_grad()" in edit.new_lines for edit in candidate.patch.edits)
        for candidate in candidates
    ]
    assert guards == [1, 2, 1]
    assert candidates[1].patch.title == (
        "Run the function `probe` and the function `evaluate` without gradients"
    )


def test_the_largest_holders_are_named_without_any_cause(writer: Any) -> None:
    program = writer.read(
        """
         |import torch
         |
         |def load():
         |    return torch.zeros(1, device="cuda")  #@load
         |
         |def evaluate(model, x):
         |    losses.append(model(x).item())  #@call
         |
         |table = load()  #@main
        """
    )
    evidence = writer.evidence(
        program,
        [writer.site(program, "call", eval_calls=8)],
        [writer.Stack(["load", "main"], mib=150), writer.Stack(["call"], mib=0.5)],
    )
    diagnosis = Playbook().diagnose(evidence)
    assert diagnosis.causes == ()
    assert diagnosis.largest == (
        "Of 200.50 MiB at the peak, train.py:4 (`load`) holds 150.00 MiB (75 % of the peak), "
        "memory without a line of the program holds 50.00 MiB (25 % of the peak), "
        "train.py:7 (`evaluate`) holds 512.00 KiB (0 % of the peak)."
    )


def test_an_empty_ledger_is_said_to_be_empty(writer: Any) -> None:
    program = writer.read("|x = 1")
    evidence = writer.evidence(program, [], [], rest_mib=0)
    diagnosis = Playbook().diagnose(evidence)
    assert diagnosis.causes == ()
    assert diagnosis.largest == "The ledger has no memory at the peak."


@pytest.mark.parametrize("source", ["x = (", "# coding: nonsense\nx = 1\n", ""])
def test_sources_that_cannot_be_read_give_nothing(writer: Any, source: str) -> None:
    evidence = evidence_of(writer)
    broken = writer.evidence(
        writer.read(TWO_CAUSES), evidence.call_sites, [writer.Stack(["call", "main"])]
    )
    broken.sources[writer.path] = source
    assert propose(broken) == ()


def test_crlf_and_byte_order_mark_survive(writer: Any) -> None:
    evidence = evidence_of(writer)
    data = b"\xef\xbb\xbf" + evidence.files()[writer.path].replace(b"\n", b"\r\n")
    evidence.sources[writer.path] = source_text(data)
    for candidate in propose(evidence):
        after = apply_patch(candidate.patch, evidence.files()).files[writer.path]
        assert after.startswith(b"\xef\xbb\xbfimport torch\r\n")
        assert after.count(b"\n") == after.count(b"\r\n")


def test_the_encoding_cookie_is_obeyed(writer: Any) -> None:
    evidence = evidence_of(writer, first_line="# coding: latin-1")
    text = evidence.files()[writer.path].decode()
    data = text.replace("kept.append(out)", "kept.append(('\xe9', out))").encode("latin-1")
    evidence.sources[writer.path] = source_text(data)
    detached = [item for item in propose(evidence) if item.patch.title.startswith("Detach")]
    after = apply_patch(detached[0].patch, evidence.files()).files[writer.path]
    assert b"kept.append(('\xe9', out.detach()))" in after


def test_equal_evidence_gives_equal_candidates(writer: Any) -> None:
    assert propose(evidence_of(writer)) == propose(evidence_of(writer))
