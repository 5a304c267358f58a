"""Puts a page together: templates, style, scripts and data in one file that asks no server for anything."""

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from headroom.evidence.analysis_model import Analysis, DeviceAnalysis, Difference
from headroom.evidence.explain.compare import headline
from headroom.evidence.text import clean_text
from headroom.records.diagnosis import Candidate, Cause
from headroom.report.page.drafts import shown_causes
from headroom.report.page.limits import LEVELS, PAGE_LIMIT_BYTES, Cutter, Limits
from headroom.report.page.names import Names
from headroom.report.page.places import percent
from headroom.report.page.reading import REASONS, fragmentation_text
from headroom.report.page.shares import CATEGORY_COLOURS
from headroom.report.page.view import DeviceView, device_view
from headroom.units import format_bytes

_SCRIPTS: Final = ("uPlot.iife.min.js", "format.js", "chart.js", "stacks.js", "page.js")
_STYLES: Final = ("uPlot.min.css", "page.css")
# In JSON these appear in strings only. Escaped, no text can close the element or open a comment in it.
_ESCAPED: Final = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


def render_page(
    analysis: Analysis,
    *,
    title: str,
    causes: Sequence[Cause] = (),
    candidates: Sequence[Candidate] = (),
    sources: Mapping[str, str] | None = None,
    difference: Difference | None = None,
    next_command: str = "",
) -> str:
    """The page on a snapshot: one HTML document of at most `PAGE_LIMIT_BYTES` bytes in UTF-8.

    Args:
        analysis: What the snapshot holds.
        title: What the page is about, such as the name of the file.
        causes: Diagnoses, largest first; the page marks them unverified.
        candidates: Drafts of patches; each cause shows the first one that is for it.
        sources: Text of the program's files by path as in the stacks, for windows around the lines.
        difference: What changed since another snapshot.
        next_command: The whole command line that goes on from here; empty where there is none.

    Returns:
        The document. What did not fit is cut, and the page says what.
    """
    material = _Material(
        analysis=analysis,
        names=Names(device.ledger for device in analysis.devices),
        title=title,
        causes=causes,
        candidates=candidates,
        sources=sources or {},
        difference=difference,
        next_command=next_command,
    )
    for limits in LEVELS:
        page = _render(material, limits)
        if page is not None and len(page.encode()) <= PAGE_LIMIT_BYTES:
            return page
    raise AssertionError("the last level of limits is too large for a page")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """What `render_page` was given, and names for it all."""

    analysis: Analysis
    names: Names
    title: str
    causes: Sequence[Cause]
    candidates: Sequence[Candidate]
    sources: Mapping[str, str]
    difference: Difference | None
    next_command: str


def _render(given: _Material, limits: Limits) -> str | None:
    """The page within limits, or None where its data alone are too large."""
    cutter = Cutter(limits=limits)
    found = _views(given, cutter)
    if found is None:
        return None
    views, data = found
    style = "\n".join(_asset(name) for name in _STYLES)
    # A page is a copy of uPlot, so its licence goes along.
    licence = f"/*\n{_asset('uPlot.LICENSE')}*/"
    script = "\n".join((licence, *(_asset(name) for name in _SCRIPTS)))
    changes = given.difference.changes if given.difference is not None else ()
    cut, analysis = cutter.cut, given.analysis
    return (
        _environment(limits.text)
        .get_template("page.html.j2")
        .render(
            title=given.title,
            policy=_policy(style, script),
            style=Markup(style),
            script=Markup(script),
            analysis=analysis,
            views=views,
            causes=shown_causes(given.causes, given.candidates, given.names, cutter),
            difference=given.difference,
            headline="" if given.difference is None else headline(given.difference),
            changes=cut(changes, limits.rows, "changed lines"),
            next_command=given.next_command,
            names=given.names,
            reasons=REASONS,
            settings=cut(sorted(analysis.settings.items()), limits.rows, "settings"),
            facts=cut(sorted(analysis.facts.items()), limits.rows, "facts"),
            notes=cut(analysis.notes, limits.rows, "notes"),
            cuts=cutter.cuts,
            data=Markup(",").join(data),
            colours=_embedded(CATEGORY_COLOURS, limits.text),
        )
    )


def _views(given: _Material, cutter: Cutter) -> tuple[list[DeviceView], list[Markup]] | None:
    """Views of the devices with their data as JSON; None as soon as these are too large."""
    views, data, room = [], [], PAGE_LIMIT_BYTES
    for device in cutter.cut(_ranked(given.analysis), cutter.limits.devices, "devices"):
        view = device_view(device, given.names, cutter, given.sources)
        views.append(view)
        data.append(_embedded(view.data, cutter.limits.text))
        room -= len(data[-1])
        if room < 0:
            return None
    return views, data


def _ranked(analysis: Analysis) -> list[DeviceAnalysis]:
    """Devices with the one of the highest peak first."""
    return sorted(
        analysis.devices, key=lambda one: (-one.ledger.peak.allocated_bytes, one.ledger.device)
    )


@cache
def _asset(name: str) -> str:
    return (files("headroom.report.page") / "assets" / name).read_text(encoding="utf-8")


def _policy(style: str, script: str) -> str:
    """A content security policy that allows exactly these two texts, and no request at all."""
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    # Browsers hash the text after its line ends became \n, and without the end tag.
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256-" + base64.b64encode(digest).decode()


def _embedded(value: Any, limit: int) -> Markup:
    """JSON for a script element: ASCII only, and without characters that mean something in HTML."""
    text = json.dumps(_clean(value, limit), separators=(",", ":"), ensure_ascii=True)
    for char, escaped in _ESCAPED.items():
        text = text.replace(char, escaped)
    return Markup(text)


def _clean(value: Any, limit: int) -> Any:
    """The value with every string made visible and cut to `limit`."""
    if isinstance(value, str):
        return clean_text(value, limit)
    if isinstance(value, Mapping):
        return {_clean(key, limit): _clean(part, limit) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_clean(part, limit) for part in value]
    return value


@cache
def _environment(limit: int) -> Environment:
    """Templates in which every text is escaped, made visible and cut to `limit` characters."""

    def shown(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, Markup):
            return clean_text(value, limit)
        return value

    environment = Environment(
        loader=FunctionLoader(_asset),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        size=_size, count=_count, ticks=partial(_ticks, limit), number=lambda value: f"{value:,}"
    )
    environment.globals.update(percent=percent, fragmentation_text=fragmentation_text)
    return environment


def _size(size_bytes: int) -> Markup:
    """Bytes as people read them, with the exact number beside them."""
    return Markup('<span class="b" title="{:,} bytes">{}</span>').format(
        size_bytes, format_bytes(size_bytes)
    )


def _count(number: int, noun: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def _ticks(limit: int, sentence: str) -> Markup:
    """A sentence with what stands between backticks as code."""
    parts = clean_text(sentence, 4 * limit).split("`")
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else escape(part)
        for place, part in enumerate(parts)
    )
