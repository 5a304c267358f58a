import os
from pathlib import Path

import pytest

from headroom.errors import PrerequisiteError, UserError
from headroom.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / ".headroom")
    store.prepare()
    return store


def test_runs_come_back(store: Store, make_run) -> None:
    run_id, folder = store.new_run()
    assert folder.is_dir()
    store.save_run(make_run(run_id=run_id))
    assert store.run(run_id).run_id == run_id
    assert [record.run_id for record in store.runs()] == [run_id]
    assert (store.folder / ".gitignore").read_text() == "*\n"


def test_ids_can_be_shortened(store: Store) -> None:
    first, _ = store.new_run()
    second, _ = store.new_campaign()
    assert store.find(first) == first
    assert store.find(first[-4:]) == first
    assert store.find("last") in (first, second)
    with pytest.raises(UserError, match="several"):
        store.find("-")
    with pytest.raises(UserError, match="no run"):
        store.find("nothing")


def test_last_is_what_the_user_started_and_not_a_run_of_a_campaign(store: Store, make_run) -> None:
    campaign_id, _ = store.new_campaign()
    run_id, _ = store.new_run()
    store.save_run(make_run(run_id=run_id, campaign_id=campaign_id))
    assert store.find("last") == campaign_id
    store.save_run(make_run(run_id=run_id))
    assert store.find("last") == max(run_id, campaign_id, key=lambda name: name.split("-", 1)[1])


def test_unfinished_and_damaged_records_get_a_sentence(store: Store, make_run) -> None:
    run_id, folder = store.new_run()
    with pytest.raises(UserError, match="not finished"):
        store.run(run_id)
    (folder / "record.json").write_text("{")
    with pytest.raises(UserError, match="damaged"):
        store.run(run_id)
    (folder / "record.json").write_text('{"schema_version": 1}')
    with pytest.raises(UserError, match="damaged"):
        store.run(run_id)
    assert list(store.runs()) == []


def test_where_the_store_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADROOM_STORE", raising=False)
    assert Store.locate(None, tmp_path).folder == tmp_path / ".headroom"
    monkeypatch.setenv("HEADROOM_STORE", "/elsewhere")
    assert Store.locate(None, tmp_path).folder == Path("/elsewhere")
    assert Store.locate(Path("/given"), tmp_path).folder == Path("/given")


def test_a_store_that_cannot_be_written_gets_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        Store(tmp_path / "file" / "store").prepare()


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
def test_a_read_only_folder_gets_a_sentence(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PrerequisiteError, match="cannot be written"):
        Store(tmp_path / "store").prepare()
