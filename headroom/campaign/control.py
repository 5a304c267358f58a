"""The unchanged program first. If its trouble does not come back, no patch gets credit."""

from dataclasses import dataclass

from headroom.campaign.runner import Runner
from headroom.errors import UserError
from headroom.records.run import RunRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The unchanged program's runs.

    Args:
        measured: The unperturbed one, whose peak counts.
        traced: The one with the allocator's history; the same run on a virtual GPU, where recording perturbs nothing.
        reference: One with a larger allowance, where `measured` ran out of memory under a cap and it would complete.
    """

    measured: RunRecord
    traced: RunRecord
    reference: RunRecord | None


def run_control(runner: Runner) -> Control:
    """Run the unchanged program under the contract.

    Raises:
        UserError: The program fails for a reason of its own, or never touches CUDA.
    """
    if runner.contract.device == "virtual":
        traced = runner.run("control", "trace", {})
        check_usable(traced)
        return Control(measured=traced, traced=traced, reference=_reference(runner, traced))
    measured = runner.run("control", "measure", {})
    check_usable(measured)
    reference = _reference(runner, measured)
    traced = runner.run("control, traced", "trace", {})
    return Control(measured=measured, traced=traced, reference=reference)


def _reference(runner: Runner, measured: RunRecord) -> RunRecord | None:
    """The original with the whole card instead of the cap, so that there is something to compare losses with."""
    info = measured.device_info
    if measured.outcome != "oom" or info is None or info.capacity_bytes >= info.total_memory_bytes:
        return None
    reference = runner.run("reference, with the whole card", "measure", {}, whole_card=True)
    return reference if reference.outcome == "completed" else None


def check_usable(record: RunRecord) -> None:
    """Whether the control shows a memory problem that can be worked on.

    Raises:
        UserError: It does not, with the reason and the next command.
    """
    label = record.program.label
    again = f"headroom run {label}"
    if record.outcome in ("failed", "killed"):
        where = ""
        if record.exception is not None and record.exception.file is not None:
            where = f" at {record.exception.file}:{record.exception.line}"
        raise UserError(f"{label} fails for a reason of its own: {record.reason}{where}", again)
    if record.device is None:
        raise UserError(f"{label} never touches CUDA, so it has no peak to lower", again)
