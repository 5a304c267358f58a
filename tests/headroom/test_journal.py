from pathlib import Path

from headroom.journal import Journal, read_journal


def test_entries_are_numbered_and_go_on_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).append("sealed", digest="x")
    journal = Journal(path)
    journal.append("run_started", run="r")
    entries = read_journal(path)
    assert [(entry["number"], entry["kind"]) for entry in entries] == [
        (1, "sealed"),
        (2, "run_started"),
    ]
    assert entries[1]["run"] == "r"


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    Journal(path).append("sealed")
    with path.open("a") as file:
        file.write('{"number": 2, "ki')
    assert [entry["kind"] for entry in read_journal(path)] == ["sealed"]
