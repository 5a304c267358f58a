"""What the recorder left beside a snapshot, on the bundled run."""

import hashlib
from pathlib import Path

import pytest

from headroom.records.run import RunRecord
from headroom.sample import sample_folder, sample_source_folder
from headroom.snapshots.recorded import device_facts, read_walks


@pytest.fixture
def sample() -> RunRecord:
    return RunRecord.from_json((sample_folder() / "record.json").read_text())


def test_the_bundled_walks_name_parameters_and_holders(sample: RunRecord) -> None:
    walks, notes = read_walks(sample, sample_folder())
    assert notes == ()
    storages = [storage for walk in walks for storage in walk.storages]
    weight = {one.category for one in storages if one.name == "Mixer.blocks.0.channels.0.weight"}
    assert weight == {"parameter", "gradient"}
    holders = {storage.holder.name for storage in storages if storage.holder is not None}
    assert "logits.grad_fn" in holders
    assert not any(name.startswith("<") for name in holders)


def test_a_damaged_file_of_names_is_said_and_not_passed_over(
    sample: RunRecord, tmp_path: Path
) -> None:
    (tmp_path / "names.jsonl").write_text('{"v": 2}\n{"v": 1}\n')
    walks, notes = read_walks(sample, tmp_path)
    assert walks == ()
    assert "names of tensors could not be read" in notes[0]
    (tmp_path / "names.jsonl").unlink()
    assert "names of tensors could not be read" in read_walks(sample, tmp_path)[1][0]


def test_a_cap_is_known_as_our_own(sample: RunRecord) -> None:
    assert device_facts(sample).cap_bytes is None
    assert sample.device_info is not None
    info = sample.device_info.model_copy(update={"capacity_bytes": 8 * 2**30})
    capped = sample.model_copy(update={"device_info": info})
    assert device_facts(capped).cap_bytes == 8 * 2**30


def test_the_bundled_program_is_the_one_that_was_run(sample: RunRecord) -> None:
    text = (sample_source_folder() / "evaluation_graph.py").read_text()
    assert [hashlib.sha256(text.encode()).hexdigest()] == list(sample.sources.values())
