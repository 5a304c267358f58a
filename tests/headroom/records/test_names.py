"""The reader of `names.jsonl`."""

import json

import pytest

from headroom.records.names import read_names

WALK = {
    "v": 1,
    "time_us": 1_700_000_000_000_000,
    "reason": "oom",
    "update": 3,
    "storages": [
        {
            "device": 0,
            "address": 140_000_000_000_000,
            "size_bytes": 4096,
            "category": "saved",
            "name": "AddmmBackward0.mat1",
            "holder": {
                "kind": "graph",
                "name": "losses[12].grad_fn",
                "file": "/p/train.py",
                "line": 7,
                "function": "main",
            },
        },
        {
            "device": 0,
            "address": 512,
            "size_bytes": 8,
            "category": "parameter",
            "name": "GPT.w",
            "holder": None,
        },
    ],
}


def test_a_walk_is_read_and_later_fields_are_tolerated():
    (walk,) = read_names(json.dumps({**WALK, "later": 1}) + "\n")
    assert (walk.update, walk.call, walk.cut) == (3, 0, False)
    saved, parameter = walk.storages
    assert saved.holder is not None and saved.holder.kind == "graph"
    assert (parameter.name, parameter.holder) == ("GPT.w", None)


def test_a_torn_last_line_is_left_out_and_a_torn_middle_one_is_not():
    line = json.dumps(WALK)
    assert len(read_names(f"{line}\n{line[:40]}")) == 1
    with pytest.raises(ValueError, match="line 1 is not a walk"):
        read_names(f"{line[:40]}\n{line}")


@pytest.mark.parametrize(
    "change", [{"category": "weights"}, {"address": "x"}, {"holder": {"kind": "thief", "name": ""}}]
)
def test_what_is_no_storage_is_refused(change):
    bad = json.dumps({**WALK, "storages": [{**WALK["storages"][0], **change}]})  # type: ignore[index]
    with pytest.raises(ValueError, match="line 1"):
        read_names(bad + "\n" + json.dumps(WALK))
