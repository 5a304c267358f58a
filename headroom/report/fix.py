"""A campaign's result, for people: on the terminal and as Markdown."""

from rich.console import Console
from rich.table import Table

from headroom.records.trial import CampaignResult, Trial
from headroom.report.text import plain
from headroom.units import format_bytes, format_seconds


def headline(result: CampaignResult) -> str:
    """The verdict in one line: word, target and equivalence beside each other, never one number."""
    target = "target met" if result.target_met else "target not met"
    return f"{result.verdict} · {target} · equivalence {result.equivalence}"


def figures(result: CampaignResult) -> list[tuple[str, str]]:
    """The rows of the table: name and value."""
    found = [
        ("program", f"{result.program} on {result.card}" + _predicted(result)),
        ("before", _before(result)),
        ("after", _after(result)),
        ("target", _target(result)),
        ("step time", _step_time(result)),
        ("verdict", result.verdict),
        ("equivalence", _equivalence(result)),
        ("why", result.why),
        (
            "rounds",
            f"{result.rounds}, {len(result.trials)} tried, {format_seconds(result.wall_seconds)}",
        ),
    ]
    return [(name, value) for name, value in found if value]


def _predicted(result: CampaignResult) -> str:
    return " (virtual GPU: figures are predictions)" if result.device == "virtual" else ""


def _bytes(size_bytes: int | None) -> str:
    return "" if size_bytes is None else format_bytes(size_bytes)


def _before(result: CampaignResult) -> str:
    shown = _bytes(result.before_peak_bytes)
    if not result.before_is_lower_bound:
        return shown
    whole = result.reference_peak_bytes
    return f"out of memory at {shown}" + (f"; needs {format_bytes(whole)}" if whole else "")


def _after(result: CampaignResult) -> str:
    after = result.after_peak_bytes
    before = result.reference_peak_bytes or result.before_peak_bytes
    if after is None:
        return "nothing kept"
    least = "at least " if result.before_is_lower_bound and not result.reference_peak_bytes else ""
    change = f" ({least}{(after - before) / before:+.1%})" if before else ""
    predicted = result.predicted_peak_bytes
    beside = (
        f", predicted {format_bytes(predicted)}" if predicted and result.device == "cuda" else ""
    )
    return format_bytes(after) + change + beside


def _target(result: CampaignResult) -> str:
    if result.target_bytes is None:
        return "to fit"
    return f"{format_bytes(result.target_bytes)}: {'met' if result.target_met else 'not met'}"


def _step_time(result: CampaignResult) -> str:
    if result.device == "virtual" or result.after_step_seconds is None:
        return ""
    before = result.before_step_seconds
    shown = format_seconds(before) if before else "unknown"
    return f"{shown} before, {format_seconds(result.after_step_seconds)} after"


def _equivalence(result: CampaignResult) -> str:
    if not result.checks:
        return result.equivalence
    shown = [
        f"{check.name} {'ok' if check.passed else 'not compared' if check.passed is None else 'CHANGED'}"
        f" ({check.value})"
        for check in result.checks
    ]
    return f"{result.equivalence}, against {result.reference}\n" + "\n".join(shown)


def print_result(console: Console, result: CampaignResult) -> None:
    """Table, trials that failed, diff, and the next command."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in figures(result):
        style = "green" if name == "verdict" and result.target_met else ""
        table.add_row(name, plain(value, style))
    console.print(table)
    for note in result.notes:
        console.print(plain(f"note: {note}", "dim"))
    for trial in result.trials:
        if not trial.verdict.kept:
            console.print(plain(f"rejected: {_tried(trial)}", "dim"))
    if result.patch:
        print_diff(console, result.patch)
    console.print(plain(next_step(result), "bold"))


def print_diff(console: Console, diff: str) -> None:
    """The diff, in colour where there is any; lines are never wrapped, so that it can be copied."""
    styles = {"+": "green", "-": "red", "@": "cyan"}
    console.print()
    for line in diff.splitlines():
        console.print(plain(line, styles.get(line[:1], "")), soft_wrap=True)
    console.print()


def _tried(trial: Trial) -> str:
    return f"{trial.candidate.patch.title}: {trial.verdict.why}"


def next_step(result: CampaignResult) -> str:
    """What to do now."""
    if result.patch:
        return f"To change your files: headroom apply {result.campaign_id}"
    return f"What was found and tried: headroom show {result.campaign_id}"


def to_markdown(result: CampaignResult) -> str:
    """The same as a document."""
    lines = [f"# {result.program}: {headline(result)}", "", "| | |", "| --- | --- |"]
    for name, value in figures(result):
        lines.append(f"| {name} | {_cell(value)} |")
    if result.notes:
        lines += ["", *(f"- note: {note}" for note in result.notes)]
    if result.trials:
        lines += [
            "",
            "## Tried",
            "",
            "| round | patch | peak | verdict | why |",
            "| --- | --- | --- | --- | --- |",
        ]
        for trial in result.trials:
            peak = _bytes(
                trial.peak_bytes if trial.peak_bytes is not None else trial.screened_peak_bytes
            )
            cells = (trial.candidate.patch.title, peak, trial.verdict.word, trial.verdict.why)
            lines.append(f"| {trial.round} | " + " | ".join(_cell(cell) for cell in cells) + " |")
    if result.patch:
        lines += ["", "## Patch", "", "```diff", result.patch.rstrip("\n"), "```"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
