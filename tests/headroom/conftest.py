"""Records made by hand: what a test does not name has a plain value."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from headroom.records.contract import Budgets, Contract, Target
from headroom.records.run import CallSite, DeviceInfo, Parameter, Program, RunRecord, Versions
from headroom.units import GIB

PROGRAM = Program(
    kind="script",
    target="/p/train.py",
    typed="train.py",
    cwd="/p",
    roots=("/p",),
    python="/usr/bin/python3",
)
PARAMETERS = (
    Parameter(name="w", shape=(4, 4), dtype="float32", requires_grad=True, size_bytes=64),
)
SITES = (
    CallSite(
        file="/p/train.py", line=9, function="train", module="Net",
        calls=3, grad_calls=3, eval_calls=0, reached_calls=3, rows=24, reached_rows=24,
    ),
    CallSite(
        file="/p/train.py", line=20, function="evaluate", module="Net",
        calls=2, grad_calls=2, eval_calls=2, reached_calls=0, rows=64,
    ),
)  # fmt: skip


@pytest.fixture
def make_run() -> Callable[..., RunRecord]:
    """`make_run(losses=(1.0,))` is a completed run of three updates."""

    def make(**fields: Any) -> RunRecord:
        plain: dict[str, Any] = {
            "run_id": "run-x",
            "program": PROGRAM,
            "purpose": "measure",
            "outcome": "completed",
            "exit_code": 0,
            "reason": "the program ended normally",
            "device": "cuda",
            "device_info": DeviceInfo(
                kind="cuda",
                name="NVIDIA H200",
                total_memory_bytes=140 * GIB,
                capacity_bytes=140 * GIB,
            ),
            "versions": Versions(headroom="0", python="3.12.1", torch="2.11.0"),
            "peak_allocated_bytes": 10 * GIB,
            "peak_reserved_bytes": 11 * GIB,
            "updates": 3,
            "losses": (3.0, 2.0, 1.0),
            "samples_per_update": (8, 8, 8),
            "gradients_per_update": (1, 1, 1),
            "step_seconds": (None, 0.1, 0.1),
            "parameters": PARAMETERS,
            "call_sites": SITES,
            "seed": 0,
            "started_at": datetime(2026, 1, 1, tzinfo=UTC),
            "wall_seconds": 1.0,
        }
        return RunRecord(**{**plain, **fields})

    return make


@pytest.fixture
def make_contract() -> Callable[..., Contract]:
    """`make_contract(device="virtual")` is a sealed contract."""

    def make(**fields: Any) -> Contract:
        plain: dict[str, Any] = {
            "program": PROGRAM,
            "sources": {"/p/train.py": "0" * 64},
            "device": "cuda",
            "card": "NVIDIA H200",
            "capacity_bytes": None,
            "target": Target(kind="auto"),
            "budgets": Budgets(),
            "seed": 0,
        }
        return Contract(**{**plain, **fields}).seal()

    return make


@pytest.fixture
def change_site() -> Callable[..., RunRecord]:
    """`change_site(run, "evaluate", rows=1)` is the run with another count at that function's call site."""

    def change(record: RunRecord, function: str, **fields: Any) -> RunRecord:
        sites = tuple(
            site.model_copy(update=fields) if site.function == function else site
            for site in record.call_sites
        )
        return record.model_copy(update={"call_sites": sites})

    return change
