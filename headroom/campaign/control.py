"""The unchanged program first. If its trouble does not come back, no patch gets credit."""

from dataclasses import dataclass

from headroom.campaign.runner import Runner
from headroom.errors import UserError
from headroom.records.run import RunRecord
from headroom.sandbox.collect import OVER_MEMORY


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """The unchanged program's runs.

    Args:
        measured: The unperturbed one, whose peak counts.
        traced: The one with the allocator's history; the same run on a virtual GPU, where recording perturbs nothing.
        reference: One with a larger allowance, where `measured` ran out of memory and it would complete: the whole card
            instead of the cap, or a virtual card without end.
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
    """The original with a larger allowance, so that there is something to compare the candidates' work with."""
    info = measured.device_info
    if measured.outcome != "oom" or info is None:
        return None
    if info.kind == "cuda" and info.capacity_bytes >= info.total_memory_bytes:
        return None
    what = "reference, with the whole card" if info.kind == "cuda" else "reference, without a limit"
    reference = runner.run(what, "measure", {}, whole_card=True)
    return reference if reference.outcome == "completed" else None


def check_usable(record: RunRecord) -> None:
    """Whether the control shows a memory problem that can be worked on.

    Raises:
        UserError: It does not, with the reason and the next command.
    """
    label = record.program.label
    again = f"headroom run {label}"
    if record.reason == OVER_MEMORY:
        raise UserError(f"{label} was {record.reason}", "headroom fix --memory-limit MORE ...")
    if record.outcome in ("failed", "killed"):
        raise UserError(f"{label} fails for a reason of its own: {_why_failed(record)}", again)
    if record.device is None:
        raise UserError(f"{label} never touches CUDA, so it has no peak to lower", again)


def _why_failed(record: RunRecord) -> str:
    error = record.exception
    where = f" at {error.file}:{error.line}" if error is not None and error.file is not None else ""
    virtual = "Torch not compiled with CUDA enabled" in record.reason
    hint = " (on the virtual GPU only the main process has a device)" if virtual else ""
    return f"{record.reason}{where}{hint}"
