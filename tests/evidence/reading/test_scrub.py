"""A scrubbed copy gives the same bytes and tells nothing about whose program it was."""

import gzip
import pickle
from pathlib import Path

import pytest

from headroom.evidence.analysis import analyse
from headroom.evidence.reading.safe_pickle import load_plain, read_snapshot
from headroom.evidence.reading.scrub import scrub_tree, write_scrubbed
from headroom.evidence.reading.snapshot import parse_snapshot

NAMES = ["full", "oom_observer", "eval_leak", "cudagraph", "expandable", "all_stacks", "labels"]


def loaded(captures: Path, name: str) -> object:
    with (captures / f"{name}.pickle").open("rb") as file:
        return load_plain(file)


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_lines_stay(captures: Path, name: str, tmp_path: Path) -> None:
    before = analyse(parse_snapshot(loaded(captures, name))).main.ledger
    target = tmp_path / "scrubbed.pickle.gz"
    write_scrubbed(scrub_tree(loaded(captures, name)), target)
    after = analyse(read_snapshot(gzip.decompress(target.read_bytes()))).main.ledger
    assert after.peaks == before.peaks
    assert after.live == before.live
    assert after.balance == before.balance
    assert after.unattributed == before.unattributed
    told = [(use.allocated_bytes, use.site and use.site.line) for use in after.stacks]
    assert sorted(told, key=str) == sorted(
        [(use.allocated_bytes, use.site and use.site.line) for use in before.stacks], key=str
    )
    assert target.stat().st_size < (captures / f"{name}.pickle").stat().st_size / 4


@pytest.mark.parametrize("name", NAMES)
def test_paths_and_names_of_the_user_are_gone(captures: Path, name: str) -> None:
    raw = pickle.dumps(scrub_tree(loaded(captures, name)), protocol=4)
    for word in (b"capture.py", b"/work", b"steering", b"research", b"site-packages/../"):
        assert word not in raw
    assert b"user/file_1.py" in raw


def test_times_labels_and_settings_that_tell_something_are_gone(captures: Path) -> None:
    tree = loaded(captures, "labels")
    assert isinstance(tree, dict)
    tree["device_traces"][0][3]["user_metadata"] = "hr:u=1,c=2,p=forward,m=SecretNet.head"
    tree["device_traces"][0][4]["compile_context"] = "secret"
    tree["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"] = "secret"
    tree["external_annotations"] = [{"name": "secret", "stage": "START"}]
    scrubbed = scrub_tree(tree)
    entries = scrubbed["device_traces"][0]
    assert entries[0]["time_us"] == 0
    assert entries[3]["user_metadata"] == "hr:u=1,c=2,p=forward"
    assert all("user_metadata" not in entry for entry in entries[:3])
    raw = pickle.dumps(scrubbed, protocol=4)
    assert b"secret" not in raw.lower()
    assert scrubbed["allocator_settings"]["max_split_size"] == -1


def test_the_same_snapshot_gives_the_same_bytes(captures: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_scrubbed(scrub_tree(loaded(captures, "fragment")), tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
