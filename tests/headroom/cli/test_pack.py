"""`headroom pack`: what it prints, where it writes, and what it refuses."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from headroom.cli import output
from headroom.cli import pack as command
from headroom.errors import HeadroomError
from headroom.evidence.pack.tokens import ESTIMATE


@pytest.fixture
def pack(monkeypatch, tmp_path: Path):
    """The command by itself, in an empty folder, on a machine without a tokenizer's table."""
    monkeypatch.setattr(command, "best_counter", lambda: ESTIMATE)
    monkeypatch.setattr(output._Mode, "json", False)
    monkeypatch.chdir(tmp_path)
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command()(command.pack)
    runner = CliRunner()

    def run(*words: str) -> Result:
        return runner.invoke(app, [str(word) for word in words])

    return run


def refusal(result: Result) -> HeadroomError:
    assert isinstance(result.exception, HeadroomError), result.output
    return result.exception


def test_a_snapshot_file_is_printed_within_its_budget(pack, captures: Path) -> None:
    done = pack(captures / "full.pickle", "--tokens", "1500")
    assert done.exit_code == 0
    assert done.stdout.startswith("# Evidence pack\n")
    assert ESTIMATE.count(done.stdout) <= 1500
    said = " ".join(done.stderr.split())
    assert f"estimated at {ESTIMATE.count(done.stdout)} tokens or fewer" in said
    assert "of at most 1500" in said


def test_detail_names_a_budget(pack, captures: Path) -> None:
    brief = pack(captures / "full.pickle", "--detail", "brief").stdout
    plain = pack(captures / "full.pickle").stdout
    assert "budget: 2000 tokens" in brief
    assert "budget: 16000 tokens" in plain
    assert len(brief) < len(plain)


def test_json_keeps_counts_and_estimates_apart(pack, captures: Path, monkeypatch) -> None:
    told = json.loads(pack(captures / "full.pickle", "--detail", "brief", "--json").stdout)
    assert told["budget_tokens"] == 2000
    assert told["counted_tokens"] is None
    assert told["estimated_tokens"] == ESTIMATE.count(told["markdown"])
    assert "S001" in told["ids"]

    class Exact:
        name, estimated = "tiktoken made_up", False

        def count(self, text: str) -> int:
            return len(text)

    monkeypatch.setattr(command, "best_counter", Exact)
    told = json.loads(pack(captures / "full.pickle", "--json").stdout)
    assert told["counted_tokens"] == len(told["markdown"])
    assert told["estimated_tokens"] is None


def test_source_lines_are_shown(pack, captures: Path, tmp_path: Path) -> None:
    lines = ["def forward(self, x):"] + [f"    x_{number} = 1" for number in range(2, 95)]
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "capture.py").write_text("\n".join(lines))
    done = pack(captures / "full.pickle", "--source", folder)
    assert done.exit_code == 0
    assert "## 1." in done.stdout


def test_out_writes_a_file_and_never_over_another(pack, captures: Path, tmp_path: Path) -> None:
    path = tmp_path / "pack.md"
    done = pack(captures / "full.pickle", "--out", path)
    assert done.stdout == ""
    assert path.read_text(encoding="utf-8").startswith("# Evidence pack\n")
    path.write_text("mine")
    error = refusal(pack(captures / "full.pickle", "--out", path))
    assert "exists already" in error.message
    assert error.next_command is not None and error.next_command.endswith("--force")
    assert path.read_text() == "mine"
    assert pack(captures / "full.pickle", "--out", path, "--force", "--json").exit_code == 0
    assert path.read_text(encoding="utf-8").startswith("# Evidence pack\n")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("full", "--tokens", "2000", "--detail", "brief"), "both set the budget"),
        (("full", "--sample"), "takes no snapshot"),
        (("full", "--out", "nowhere/pack.md"), "is not a folder"),
        (("full", "--out", "."), "is a folder"),
        (("full", "--device", "7"), "device 7"),
        (("nosuch.pickle",), "nosuch.pickle"),
    ],
)
def test_bad_input_is_one_sentence(pack, captures: Path, words, sentence: str) -> None:
    path = str(captures / "full.pickle")
    error = refusal(pack(*(path if word == "full" else word for word in words)))
    assert sentence in error.message
    assert "\n" not in error.message
    assert error.exit_code == 2


@pytest.mark.parametrize("tokens", ["999", "500001", "many"])
def test_budgets_outside_the_range_are_refused(pack, captures: Path, tokens: str) -> None:
    assert pack(captures / "full.pickle", "--tokens", tokens).exit_code == 2
