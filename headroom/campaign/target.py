"""Targets: from what was typed, to what the contract says, to bytes once the control has run."""

from collections import Counter
from typing import Final

from headroom.errors import UserError
from headroom.records.contract import Target
from headroom.records.run import RunRecord
from headroom.units import format_bytes, parse_bytes, parse_percent

AUTO_PERCENT: Final = 0.7
_EXAMPLES: Final = "headroom fix --target fit|60%|12GiB ..."


def parse_target(text: str | None) -> Target:
    """Read `--target`.

    Raises:
        UserError: It is no target.
    """
    if text is None:
        return Target(kind="auto")
    if text.strip().lower() == "fit":
        return Target(kind="fit")
    percent = parse_percent(text)
    if percent is not None:
        if not 0 < percent < 1:
            raise UserError(
                f"a target of {text} of the peak is no reduction that can exist", _EXAMPLES
            )
        return Target(kind="percent", value=percent)
    try:
        size_bytes = parse_bytes(text)
    except ValueError:
        raise UserError(
            f"{text!r} is not a target: fit, a share of the peak, or a size", _EXAMPLES
        ) from None
    if size_bytes <= 0:
        raise UserError("a target of no bytes at all is impossible", _EXAMPLES)
    return Target(kind="bytes", value=size_bytes)


def resolve_target(target: Target, control: RunRecord) -> int | None:
    """Bytes to reach, given the control; None means to fit.

    Raises:
        UserError: The target is met already, or no patch can meet it.
    """
    peak_bytes = control.peak_allocated_bytes or 0
    # One that the program caught is an out-of-memory error all the same: it went on with less work.
    out_of_memory = control.outcome == "oom" or control.oom is not None
    if target.kind == "fit" or (target.kind == "auto" and out_of_memory):
        if not out_of_memory:
            raise UserError(
                f"{control.program.label} fits already: its peak is {format_bytes(peak_bytes)}",
                "headroom fix --target 70% ...   (or --capacity SIZE, to try a smaller card)",
            )
        return None
    if target.kind == "bytes" and target.value is not None:
        size_bytes = int(target.value)
    else:
        size_bytes = int(peak_bytes * (target.value or AUTO_PERCENT))
    if not out_of_memory and peak_bytes <= size_bytes:
        raise UserError(
            f"the target of {format_bytes(size_bytes)} is met already: the peak is {format_bytes(peak_bytes)}",
            "headroom fix --target 70% ...",
        )
    floor_bytes = _least_bytes(control)
    if size_bytes < floor_bytes:
        raise UserError(
            f"the target of {format_bytes(size_bytes)} is impossible: "
            f"the parameters alone take {format_bytes(floor_bytes)}",
            f"headroom fix --target {format_bytes(2 * floor_bytes).replace(' ', '')} ...",
        )
    return size_bytes


def _least_bytes(control: RunRecord) -> int:
    """What any run needs: the parameters of the largest module. Others may share them, or have gone before."""
    of_root: Counter[str] = Counter()
    for parameter in control.parameters:
        if parameter.on_device:
            of_root[parameter.root] += parameter.size_bytes
    return max(of_root.values(), default=0)


def describe_target(target: Target) -> str:
    """The target in words, before the control has run."""
    if target.kind == "auto":
        return "to fit if it runs out of memory, else 70 % of its peak"
    if target.kind == "fit":
        return "to fit"
    if target.kind == "percent":
        return f"{(target.value or 0) * 100:g} % of its peak"
    return format_bytes(int(target.value or 0))
