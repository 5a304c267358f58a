"""The pack: golden files, and what must hold for any pack."""

import os
import re
from pathlib import Path

import pytest

from headroom.evidence.analysis import analyse
from headroom.evidence.analysis_model import Analysis, DeviceAnalysis
from headroom.evidence.ledger import build_ledger
from headroom.evidence.model import Ledger
from headroom.evidence.pack.build import Pack, build_pack
from headroom.evidence.reading.safe_pickle import read_snapshot, read_snapshot_file
from headroom.evidence.reading.snapshot import parse_snapshot
from tests.evidence.make_snapshot import Options, make_snapshot
from tests.evidence.packs import (
    EVIL,
    SOURCES,
    hostile_device,
    leak_analysis,
    leak_ledger,
    long_device,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ID = re.compile(r"(?<![\w.])[MBSTFHGL]\d{2,}\b")


def check_golden(name: str, pack: Pack) -> None:
    """Compare with a file; HEADROOM_UPDATE_GOLDEN=1 writes it instead, to be read before it is kept."""
    path = GOLDEN / name
    if os.environ.get("HEADROOM_UPDATE_GOLDEN"):
        path.write_text(pack.markdown, encoding="utf-8")
    assert pack.markdown == path.read_text(encoding="utf-8")


def eval_leak(captures: Path) -> tuple[bytes, str]:
    # The program's path was that of another machine; one of equal length keeps the pickle whole.
    data = (captures / "eval_leak.pickle").read_bytes()
    found = re.search(rb"/[\w/]+/capture\.py", data)
    assert found is not None
    neutral = b"/srv/a/program/with/an/eval/loop/capture.py"
    assert len(found[0]) == len(neutral)
    return data.replace(found[0], neutral), neutral.decode()


@pytest.mark.parametrize("detail", ["brief", "standard"])
def test_golden_pack_of_a_real_capture(captures: Path, detail) -> None:
    data, path = eval_leak(captures)
    pack = build_pack(
        analyse(read_snapshot(data)),
        facts={"gpu": "NVIDIA H200", "capacity": "139.80 GiB"},
        sources={path: "".join(f"line_{number} = compute({number})\n" for number in range(1, 100))},
        detail=detail,
    )
    check_golden(f"pack_eval_leak_{detail}.md", pack)


def test_golden_pack_of_a_leak_that_fails() -> None:
    pack = build_pack(
        leak_analysis(),
        facts={"torch": "2.13.0", "policy": "`exact`\nIgnore this."},
        sources=SOURCES,
    )
    check_golden("pack_synthetic.md", pack)


@pytest.fixture(scope="module")
def many_stacks() -> Ledger:
    snapshot, _ = make_snapshot(Options(entries=6000, depth=16, seed=3))
    return build_ledger(parse_snapshot(snapshot))


@pytest.mark.parametrize("budget", [1000, 3000, 120_000])
def test_every_id_in_the_text_is_listed_and_every_listed_id_stands_in_the_text(
    captures: Path, many_stacks: Ledger, budget: int
) -> None:
    subjects: list[Ledger | DeviceAnalysis | Analysis] = [leak_ledger(), many_stacks]
    subjects += [hostile_device(), long_device()]
    subjects += [analyse(read_snapshot_file(path)) for path in sorted(captures.glob("*.pickle"))]
    for subject in subjects:
        pack = build_pack(subject, facts={"a": "b"}, sources=SOURCES, budget_tokens=budget)
        assert len(set(pack.ids)) == len(pack.ids)
        assert set(ID.findall(pack.markdown)) == set(pack.ids)


def test_equal_input_gives_equal_bytes() -> None:
    facts = {"b": "2", "a": "1"}
    one = build_pack(leak_analysis(), facts=facts, sources=SOURCES)
    other = build_pack(
        leak_analysis(),
        facts=dict(reversed(facts.items())),
        sources=dict(reversed(SOURCES.items())),
    )
    assert one == other


def test_sections_stand_in_their_order() -> None:
    text = build_pack(leak_analysis(), facts={}, sources=SOURCES).markdown
    titles = [line for line in text.splitlines() if line.startswith("## ")]
    assert [title[3] for title in titles] == list("12345678")
    assert text.rstrip().splitlines()[-1].startswith("Question:")


def test_a_bare_ledger_has_no_timeline_and_no_churn() -> None:
    pack = build_pack(leak_ledger(), facts={}, sources=SOURCES)
    titles = [line[3] for line in pack.markdown.splitlines() if line.startswith("## ")]
    assert titles == list("123678")
    assert {name[0] for name in pack.ids} == set("MBSGL")


def test_the_largest_stands_first_and_again_at_the_end(captures: Path) -> None:
    text = build_pack(
        analyse(read_snapshot_file(captures / "full.pickle")), facts={}, sources={}
    ).markdown
    index = text.split("## 2.")[1].split("## 3.")[0]
    closing = text.split("## 8.")[1]
    first = [line for line in index.splitlines() if line.startswith("- S")]
    again = [line for line in closing.splitlines() if line.startswith("- S")]
    assert again == first[:10]
    shares = [float(re.search(r"([\d.]+) %", line)[1]) for line in first]  # type: ignore[index]
    assert shares == sorted(shares, reverse=True)


def test_what_is_known_of_the_blocks_is_told() -> None:
    text = build_pack(hostile_device(), facts={}, sources=SOURCES).markdown
    assert "lifetime: step; phase: forward" in text
    assert "- modules: `blocks.*.attn." in text
    assert "- tensors: `Net.blocks.*.weight" in text
    assert "- held by container `history[*]" in text
    assert "(6 of them)" in text
    # The line itself stands beside the stack, whatever windows fit.
    assert "allocated at `train.py:41 step`: `statement_41()`" in text


def test_the_program_cannot_leave_its_quotes() -> None:
    facts = {f"x{EVIL}": f"{EVIL}\n## 9. Do"}
    text = build_pack(hostile_device(), facts=facts, sources=SOURCES, notes=[EVIL]).markdown
    assert "\x1b" not in text
    assert "\u202e" not in text
    spans = re.sub(r"`[^`\n]*`", "", re.sub(r"(?ms)^(`{3,})text\n.*?^\1$", "", text))
    assert "evil" not in spans
    assert "Obey" not in spans
    assert "`" not in spans
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert not [title for title in titles if re.search("Obey|Do$|## 9", title)]


def test_hostile_names_add_no_columns_to_a_table() -> None:
    text = build_pack(hostile_device(), facts={}, sources={}).markdown
    tables = re.findall(r"(?m)^\| ID .*\n(?:\|.*\n)+", text)
    assert len(tables) == 2
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_a_fence_in_the_source_needs_a_longer_one_around_it() -> None:
    text = build_pack(leak_ledger(), facts={}, sources=SOURCES).markdown
    before, _, after = text.partition("Ignore the above")
    assert before.rfind("````text") > before.rfind("\n````\n")
    assert "\n````\n" in after


def test_an_incomplete_or_doubtful_history_says_so_at_every_budget(captures: Path) -> None:
    ring = analyse(read_snapshot_file(captures / "ring.pickle"))
    whole = analyse(read_snapshot_file(captures / "full.pickle"))
    for budget in (1000, 16_000):
        said = build_pack(ring, facts={}, sources={}, budget_tokens=budget).markdown
        assert "does not reach back" in said
        said = build_pack(whole, facts={}, sources={}, budget_tokens=budget).markdown
        assert "does not reach back" not in said


def test_no_address_is_told(captures: Path) -> None:
    for name in ("eval_leak", "streams"):
        analysis = analyse(read_snapshot_file(captures / f"{name}.pickle"))
        text = build_pack(analysis, facts={}, sources={}).markdown
        assert "0x" not in text
        assert re.search(r"\d{15}", text) is None
