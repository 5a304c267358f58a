from headroom.campaign.gather import unread_sources


def test_files_that_no_agent_can_read_are_named(make_run, tmp_path) -> None:
    plain, latin, deep = (tmp_path / name for name in ("plain.py", "latin.py", "deep.py"))
    plain.write_text("x = 1\n")
    latin.write_bytes("# -*- coding: latin-1 -*-\nx = 'gr\u00f6\u00dfer'\n".encode("latin-1"))
    deep.write_text("x = " + " + ".join(["1"] * 900) + "\n")
    gone = tmp_path / "gone.py"
    record = make_run(sources={str(path): "0" for path in (plain, latin, deep, gone)})
    assert unread_sources(record) == (
        f"{latin} is not UTF-8, so it was not read",
        f"{deep} nests its code too deeply, so it was not read",
    )
