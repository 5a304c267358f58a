"""Parts of the peak under one heading, with the colours that they have everywhere on the page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headroom.evidence.analysis_model import Composition, Layer, Share
from headroom.evidence.explain.composition import NO_MODULE
from headroom.evidence.explain.timeline import REST
from headroom.report.page.limits import Cutter
from headroom.report.page.reading import REASONS

COLOURS: Final = 12
REST_COLOUR: Final = "kx"
SUM_COLOUR: Final = "ky"
CATEGORY_COLOURS: Final[dict[str, str]] = {
    "parameter": "k0",
    "activation": "k1",
    "variable": "k2",
    "backward_temporary": "k3",
    "optimizer_state": "k4",
    "workspace": "k5",
    "gradient": "k6",
    "evaluation": "k7",
    "input": "k8",
    "buffer": "k9",
    "other": REST_COLOUR,
}
"""Classes of page.css, so that a category has the same colour in every chart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareRow:
    """A part of the peak with its colour and, for a bar, where it begins (`start`) and ends, in percent."""

    share: Share
    colour: str
    start: float
    width: float


def layer_colours(layers: Sequence[Layer]) -> list[str]:
    """Colours in the order of layers; grey for what has no line."""
    found, used = [], 0
    for layer in layers:
        if layer.label in REASONS or layer.label == REST:
            found.append(REST_COLOUR if layer.label in REASONS else SUM_COLOUR)
        else:
            found.append(f"k{used % COLOURS}")
            used += 1
    return found


def compositions(
    composition: Composition, peak_bytes: int, cutter: Cutter
) -> list[tuple[str, list[ShareRow]]]:
    """The peak by category, module, phase and lifetime; a list that says nothing is left out."""
    parts: dict[str, Sequence[Share]] = {
        "category": composition.categories,
        "module": composition.modules,
        "phase": composition.phases,
        "lifetime": composition.lifetimes,
    }
    return [
        (title, _share_rows(_folded(shares, cutter.limits.rows), peak_bytes, title))
        for title, shares in parts.items()
        # One module of that name says nothing that the other lists do not.
        if shares and [share.name for share in shares] != [NO_MODULE]
    ]


def _folded(shares: Sequence[Share], limit: int) -> list[Share]:
    """At most `limit` shares; the smallest are added up in a last one, so that the whole stays the peak."""
    if len(shares) <= limit:
        return list(shares)
    rest = shares[limit - 1 :]
    return [
        *shares[: limit - 1],
        Share(
            name=f"{len(rest):,} more",
            allocated_bytes=sum(one.allocated_bytes for one in rest),
            blocks=sum(one.blocks for one in rest),
            inferred_bytes=sum(one.inferred_bytes for one in rest),
        ),
    ]


def _share_rows(shares: Sequence[Share], peak_bytes: int, title: str) -> list[ShareRow]:
    rows, start = [], 0.0
    for number, share in enumerate(shares):
        width = 100 * share.allocated_bytes / peak_bytes if peak_bytes else 0.0
        colour = f"k{number}" if number < COLOURS else REST_COLOUR
        if title == "category":
            colour = CATEGORY_COLOURS.get(share.name, REST_COLOUR)
        rows.append(
            ShareRow(share=share, colour=colour, start=round(start, 3), width=round(width, 3))
        )
        start += width
    return rows
