"""What the templates show of one device: rows with names, shares and colours, cut to the limits."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headroom.evidence.analysis_model import DeviceAnalysis, FreeKey, HotPath
from headroom.evidence.explain.timeline import INFERRED
from headroom.evidence.model import (
    BalanceSheet,
    Growth,
    LiveBlock,
    PoolAccount,
    StackId,
    StackUse,
)
from headroom.report.page.details import Details, details_of
from headroom.report.page.limits import Cutter
from headroom.report.page.names import Names, StackName
from headroom.report.page.places import blocks_by_stack, fills, main_category, most
from headroom.report.page.reading import failing_line, refused_with_room, silences
from headroom.report.page.shares import REST_COLOUR, ShareRow, compositions, layer_colours
from headroom.report.page.sheets import sheets
from headroom.report.page.timeline import ordered_layers, timeline_data


@dataclass(frozen=True, slots=True, kw_only=True)
class StackRow:
    """A row of the table of stacks; `width` is percent of the peak."""

    use: StackUse
    name: StackName
    colour: str
    category: str
    inferred: bool
    mixed: bool
    module: str
    lifetime: str
    phase: str
    tensor: str
    width: float
    growth: Growth | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GrowthRow:
    """A growth with the name of its stack."""

    growth: Growth
    name: StackName
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PathRow:
    """A hot path with its name."""

    path: HotPath
    name: StackName
    listed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceView:
    """One device as the templates read it. `data` is for the script."""

    device: DeviceAnalysis
    anchor: str
    fills: str
    roomy: str
    failed_at: str
    compositions: Sequence[tuple[str, Sequence[ShareRow]]]
    stacks: Sequence[StackRow]
    growth: Sequence[GrowthRow]
    settled: Sequence[GrowthRow]
    free_keys: Sequence[FreeKey]
    paths: Sequence[PathRow]
    pools: Sequence[PoolAccount]
    sheets: Sequence[tuple[str, BalanceSheet]]
    silences: Sequence[str]
    data: dict[str, Any]

    @property
    def owned_bytes(self) -> int:
        """Bytes of the peak that have a stack."""
        return sum(use.allocated_bytes for use in self.device.ledger.stacks)

    @property
    def other_bytes(self) -> int:
        """Bytes of the stacks that are not listed."""
        return self.owned_bytes - sum(row.use.allocated_bytes for row in self.stacks)

    @property
    def other_stacks(self) -> int:
        """How many stacks are not listed."""
        return len(self.device.ledger.stacks) - len(self.stacks)

    @property
    def phases_inferred(self) -> bool:
        """Whether a phase of the timeline follows from stacks and not from what the program said."""
        return any(one.name.endswith(INFERRED) for one in self.device.timeline.phases)

    @property
    def growing(self) -> bool:
        """Whether a listed stack grows or grew."""
        return any(row.growth is not None for row in self.stacks)

    @property
    def ticked(self) -> bool:
        """Whether a hot path is counted by update or call."""
        return any(row.path.per_tick is not None for row in self.paths)


def device_view(
    device: DeviceAnalysis, names: Names, cutter: Cutter, sources: Mapping[str, str]
) -> DeviceView:
    """Everything the page shows of a device."""
    ledger, rows = device.ledger, cutter.limits.rows
    on = f"of device {ledger.device}"
    listed = cutter.cut(ledger.stacks, cutter.limits.stacks, f"stacks {on}")
    leaks = cutter.cut([one for one in ledger.growth if one.leak], rows, f"growing stacks {on}")
    settled = cutter.cut(device.settled_growth, rows, f"settled stacks {on}")
    paths = cutter.cut(device.churn.paths, rows, f"allocating paths {on}")
    layers = ordered_layers(device.timeline, cutter.limits.layers)
    colours = layer_colours(layers)
    ids = {use.id for use in listed}
    wanted = ids | {layer.stack for layer in layers} | {one.stack for one in (*leaks, *settled)}
    named = {use.id: names.stack(use) for use in ledger.stacks if use.id in wanted}
    of_stack = {one.stack: colour for one, colour in zip(layers, colours, strict=True) if one.stack}
    blocks = blocks_by_stack(ledger)
    details = details_of(listed, blocks, Details(names, cutter, sources))
    return DeviceView(
        device=device,
        anchor=f"d{ledger.device}",
        fills=fills(ledger, names),
        roomy=refused_with_room(ledger),
        failed_at=failing_line(ledger, names),
        compositions=compositions(device.composition, ledger.peak.allocated_bytes, cutter),
        stacks=_stack_rows(device, listed, named, blocks, of_stack),
        growth=_growth_rows(leaks, named, ids),
        settled=_growth_rows(settled, named, ids),
        free_keys=cutter.cut(device.fragmentation.keys, rows, f"kinds of free memory {on}"),
        paths=[
            PathRow(path=one, name=names.path_of(one.frames, one.site), listed=one.stack in ids)
            for one in paths
        ],
        pools=cutter.cut(ledger.pools, rows, f"pools {on}"),
        sheets=sheets(device),
        silences=silences(device),
        data={
            "device": ledger.device,
            "total": _total(device),
            "timeline": timeline_data(device, layers, colours, named, cutter),
            "updates": _updates(device, cutter),
            **details,
        },
    )


def _growth_rows(
    found: Sequence[Growth], named: Mapping[StackId, StackName], listed: Collection[StackId]
) -> list[GrowthRow]:
    return [
        GrowthRow(growth=one, name=_name_of(one.stack, named), listed=one.stack in listed)
        for one in found
    ]


def _updates(device: DeviceAnalysis, cutter: Cutter) -> list[tuple[int, int, int]]:
    """Number, peak and end of each update, for the script."""
    what = f"updates of device {device.ledger.device}"
    chosen = cutter.cut(device.updates, cutter.limits.points, what)
    return [(one.update, one.peak_bytes, one.live_bytes) for one in chosen]


def _total(device: DeviceAnalysis) -> int | None:
    balance = device.ledger.balance
    return balance.device_total_bytes if balance is not None else None


def _name_of(stack: StackId, named: Mapping[StackId, StackName]) -> StackName:
    return named.get(stack, StackName(where=stack, function="", path=""))


def _stack_rows(
    device: DeviceAnalysis,
    listed: Sequence[StackUse],
    named: Mapping[StackId, StackName],
    blocks: Mapping[StackId, Sequence[LiveBlock]],
    colours: Mapping[StackId, str],
) -> list[StackRow]:
    peak_bytes = device.ledger.peak.allocated_bytes
    growing = {one.stack: one for one in reversed((*device.ledger.growth, *device.settled_growth))}
    rows = []
    for use in listed:
        mine = blocks.get(use.id, ())
        category, inferred = main_category(mine)
        rows.append(
            StackRow(
                use=use,
                name=named[use.id],
                colour=colours.get(use.id, REST_COLOUR),
                category=category,
                inferred=inferred,
                mixed=len({block.category for block in mine}) > 1,
                module=most(mine, lambda block: block.module),
                lifetime=most(mine, lambda block: block.lifetime),
                phase=most(mine, lambda block: block.phase or ""),
                tensor=_tensor_names(mine),
                width=round(100 * use.allocated_bytes / peak_bytes, 3) if peak_bytes else 0.0,
                growth=growing.get(use.id),
            )
        )
    return rows


def _tensor_names(blocks: Sequence[LiveBlock]) -> str:
    """The largest named tensor of a stack, and how many more have names."""
    sizes: Counter[str] = Counter()
    for block in blocks:
        if block.name:
            sizes[block.name] += block.allocated_bytes
    if not sizes:
        return ""
    more = len(sizes) - 1
    return sizes.most_common(1)[0][0] + (f" and {more} more" if more else "")
