"""A caching allocator as simple as can be: every search is a scan. It records what torch would, and the truth.

Written from the rules of torch's allocator, apart from the code under test: best fit in a pool, splitting, merging,
blocks that are freed but pending on another stream, release of cached segments, expandable segments that map and
unmap pages.
"""

from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
FOREVER = 1 << 40


@dataclass(slots=True, eq=False)
class Piece:
    address: int
    size: int
    state: str = "inactive"  # or "active_allocated", "active_pending_free", "unmapped"
    requested: int = 0
    frames: list[dict[str, Any]] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Region:
    """A cudaMalloc'd segment, or the reserved addresses of an expandable one."""

    pool: tuple[bool, int]
    expandable: bool
    pieces: list[Piece]


@dataclass(slots=True, kw_only=True)
class Allocator:
    expandable: bool = False
    max_split: int = 0
    divisions: int = 0
    regions: list[Region] = field(default_factory=list)
    entries: list[dict[str, Any]] = field(default_factory=list)
    truth: list[dict[str, int]] = field(default_factory=list)
    next_address: int = 1 << 44
    # What the entries that follow carry.
    frames: list[dict[str, Any]] = field(default_factory=list)
    label: str = ""

    def malloc(self, requested: int, stream: int = 0) -> Piece:
        size = self.rounded(requested)
        pool = (size <= MIB, stream)
        region, piece = self.best_fit(size, pool) or self.grow(size, pool)
        rest = piece.size - size
        whole = self.max_split and size >= self.max_split and not region.expandable
        least = 512 if pool[0] or self.expandable else MIB + 1
        if rest >= least and not whole:
            place = region.pieces.index(piece)
            region.pieces.insert(place + 1, Piece(piece.address + size, rest))
            piece.size = size
        piece.state, piece.requested, piece.frames = "active_allocated", requested, self.frames
        self.record("alloc", piece.address, requested, stream)
        return piece

    def rounded(self, requested: int) -> int:
        if self.divisions and requested > 512 * self.divisions:
            power = 1
            while power * 2 <= requested:
                power *= 2
            size = power
            while size < requested:
                size += power // self.divisions
            return size
        size = 512
        while size < requested:
            size += 512
        return size

    def best_fit(self, size: int, pool: tuple[bool, int]) -> tuple[Region, Piece] | None:
        fitting = [
            (region, piece)
            for region in self.regions
            if region.pool == pool
            for piece in region.pieces
            if piece.state == "inactive" and piece.size >= size
        ]
        if not fitting:
            return None
        region, piece = min(fitting, key=lambda pair: (pair[1].size, pair[1].address))
        if self.max_split and not self.expandable:
            if size < self.max_split <= piece.size:
                return None
            if size >= self.max_split and piece.size >= size + 20 * MIB:
                return None
        return region, piece

    def grow(self, size: int, pool: tuple[bool, int]) -> tuple[Region, Piece]:
        if self.expandable:
            return self.map_pages(size, pool)
        if pool[0]:
            segment = 2 * MIB
        elif size < 10 * MIB:
            segment = 20 * MIB
        else:
            segment = -(-size // (2 * MIB)) * 2 * MIB
        piece = Piece(self.next_address, segment)
        # Segments touch: a reader must not take two of them for one.
        self.next_address += segment
        region = Region(pool, False, [piece])
        self.regions.append(region)
        self.record("segment_alloc", piece.address, segment, pool[1])
        return region, piece

    def map_pages(self, size: int, pool: tuple[bool, int]) -> tuple[Region, Piece]:
        region = next((one for one in self.regions if one.pool == pool), None)
        if region is None:
            region = Region(pool, True, [Piece(self.next_address, FOREVER, "unmapped")])
            self.next_address += FOREVER
            self.regions.append(region)
        page = 2 * MIB if pool[0] else 20 * MIB
        for place, hole in enumerate(region.pieces):
            before = region.pieces[place - 1] if place else None
            there = before.size if before is not None and before.state == "inactive" else 0
            amount = -(-(size - there) // page) * page
            if hole.state == "unmapped" and hole.size >= amount:
                break
        mapped = Piece(hole.address, amount)
        region.pieces[place] = mapped
        if hole.size > amount:
            rest = Piece(hole.address + amount, hole.size - amount, "unmapped")
            region.pieces.insert(place + 1, rest)
        self.record("segment_map", mapped.address, amount, pool[1])
        return region, self.merge(region, mapped)

    def merge(self, region: Region, piece: Piece) -> Piece:
        place = region.pieces.index(piece)
        if place + 1 < len(region.pieces) and region.pieces[place + 1].state == piece.state:
            piece.size += region.pieces.pop(place + 1).size
        if place > 0 and region.pieces[place - 1].state == piece.state:
            region.pieces[place - 1].size += piece.size
            del region.pieces[place]
            piece = region.pieces[place - 1]
        return piece

    def free(self, piece: Piece, *, pending: bool = False) -> None:
        piece.state = "active_pending_free"
        self.record("free_requested", piece.address, piece.requested, 0)
        if not pending:
            self.complete(piece)

    def complete(self, piece: Piece) -> None:
        piece.state = "inactive"
        self.record("free_completed", piece.address, piece.requested, 0)
        self.merge(next(one for one in self.regions if piece in one.pieces), piece)

    def empty_cache(self) -> None:
        for region in list(self.regions):
            if region.expandable:
                self.unmap_pages(region)
            elif len(region.pieces) == 1 and region.pieces[0].state == "inactive":
                self.regions.remove(region)
                piece = region.pieces[0]
                self.record("segment_free", piece.address, piece.size, region.pool[1])

    def unmap_pages(self, region: Region) -> None:
        page, start = 2 * MIB if region.pool[0] else 20 * MIB, region.pieces[0].address
        for piece in list(region.pieces):
            first = start + -(-(piece.address - start) // page) * page
            last = start + (piece.address + piece.size - start) // page * page
            if piece.state != "inactive" or last <= first or piece not in region.pieces:
                continue
            place = region.pieces.index(piece)
            hole = Piece(first, last - first, "unmapped")
            parts = [Piece(piece.address, first - piece.address), hole]
            parts.append(Piece(last, piece.address + piece.size - last))
            region.pieces[place : place + 1] = [part for part in parts if part.size]
            self.record("segment_unmap", first, last - first, region.pool[1])
            self.merge(region, hole)

    def record(self, action: str, address: int, size: int, stream: int) -> None:
        entry = {"action": action, "addr": address, "size": size, "stream": stream}
        self.entries.append({**entry, "frames": self.frames, "user_metadata": self.label})
        self.truth.append(self.totals())

    def totals(self) -> dict[str, int]:
        pieces = [piece for region in self.regions for piece in region.pieces]
        active = [piece for piece in pieces if piece.state.startswith("active")]
        return {
            "allocated": sum(p.size for p in active if p.state == "active_allocated"),
            "active": sum(p.size for p in active),
            "requested": sum(p.requested for p in active),
            "reserved": sum(p.size for p in pieces if p.state != "unmapped"),
        }

    def out_of_memory(self, requested: int, device_free: int) -> None:
        entry = {"action": "oom", "device_free": device_free, "size": requested, "stream": 0}
        self.entries.append({**entry, "frames": self.frames, "user_metadata": self.label})
        self.truth.append(self.totals())

    def snapshot(self, dropped: int = 0) -> dict[str, Any]:
        """The snapshot whose history has lost its first `dropped` entries."""
        settings = {
            "max_split_size": self.max_split or -1,
            "expandable_segments": self.expandable,
            "roundup_power2_divisions": {str(1 << place): self.divisions for place in range(16)},
        }
        return {
            "segments": [one for region in self.regions for one in _mapped_ranges(region)],
            "device_traces": [self.entries[dropped:]],
            "allocator_settings": settings,
        }


def _mapped_ranges(region: Region) -> list[dict[str, Any]]:
    segments: list[dict[str, Any]] = []
    open_range = False
    for piece in region.pieces:
        if piece.state == "unmapped":
            open_range = False
            continue
        if not open_range:
            segments.append(
                {
                    "device": 0,
                    "address": piece.address,
                    "total_size": 0,
                    "stream": region.pool[1],
                    "segment_type": "small" if region.pool[0] else "large",
                    "is_expandable": region.expandable,
                    "blocks": [],
                }
            )
            open_range = True
        segments[-1]["total_size"] += piece.size
        segments[-1]["blocks"].append(
            {
                "address": piece.address,
                "size": piece.size,
                "requested_size": piece.requested,
                "state": piece.state,
                "frames": piece.frames,
            }
        )
    return segments
