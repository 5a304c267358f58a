"""Synthetic snapshots with their ground truth.

A small best-fit caching allocator (512-byte rounding, 2 MiB small and 20 MiB large segments, splitting and merging)
is simulated under a training loop, so history, final segments and blocks agree, and the truth holds what a
reader must recover. As in torch, alloc and free entries carry the requested size while blocks carry the real one.
Sharing is as torch makes it: one dictionary per distinct frame, one list per traceback.
"""

import bisect
import random
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MIB = 1 << 20
Stack = list[dict[str, Any]]
Pool = tuple[int, int]
Key = tuple[bool, Pool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What to simulate.

    `split_like_torch` is the one thing that torch does and the simulation did not: pieces of expandable segments
    are split down to 512 bytes in the large pool too.
    """

    entries: int = 10_000
    stacks: int = 500
    depth: int = 40
    capacity_mib: int = 6144
    preexisting: int = 100
    devices: int = 1
    ring: int = 0
    expandable: bool = False
    split_like_torch: bool = True
    pools: bool = False
    oom: bool = True
    seed: int = 0


SITE = "/usr/local/lib/python3.12/dist-packages/torch"


def build_stacks(rng: random.Random, options: Options) -> list[Stack]:
    """Stacks of frame dictionaries, innermost first; dictionaries are shared between stacks."""
    known: dict[tuple[str, int, str], dict[str, Any]] = {}

    def frame(filename: str, line: int, name: str) -> dict[str, Any]:
        fresh = {"name": name, "filename": filename, "line": line}
        return known.setdefault((filename, line, name), fresh)

    stacks = []
    for stack in range(options.stacks):
        frames: Stack = []
        own = rng.randrange(1, 9)
        program = "/srv/job/train.py" if stack % 3 else "/srv/job/model/block.py"
        frames.append(frame(program, 10 + stack, f"forward_{stack % 37}"))
        for place in range(own):
            frames.append(
                frame("/srv/job/model/block.py", 400 + (stack * 7 + place) % 90, "forward")
            )
        while len(frames) < options.depth - 3:
            odd = len(frames) % 2
            name = "_wrapped_call_impl" if odd else "_call_impl"
            frames.append(frame(f"{SITE}/nn/modules/module.py", 1751 + odd * 11, name))
        for line, name in ((212, "train_step"), (260, "main"), (281, "<module>")):
            frames.append(frame("/srv/job/train.py", line, name))
        stacks.append(frames[: options.depth])
    return stacks


@dataclass(slots=True, eq=False)
class Segment:
    address: int
    size: int
    small: bool
    pool: Pool
    frames: Stack
    expandable: bool
    first: "Block | None" = None


@dataclass(slots=True, eq=False)
class Block:
    address: int
    size: int
    segment: Segment
    requested: int = 0
    state: str = "inactive"
    before: "Block | None" = None
    after: "Block | None" = None
    frames: Stack = field(default_factory=list)
    stack: int = -1


class Device:
    def __init__(self, index: int, capacity: int, expandable: bool) -> None:
        self.index, self.capacity, self.expandable = index, capacity, expandable
        self.free: dict[Key, list[tuple[int, int, int, Block]]] = {}
        self.segments: list[Segment] = []
        self.tail: dict[Key, tuple[Segment, Block]] = {}
        self.reserved = self.live = self.live_requested = 0
        self.next_address = 0x7F0000000000 + index * (1 << 40)
        self.trace: list[dict[str, Any]] = []
        # Live bytes after each recorded entry.
        self.requested_after, self.rounded_after = array("q"), array("q")

    def put(self, key: Key, block: Block) -> None:
        item = (block.size, block.address, id(block), block)
        bisect.insort(self.free.setdefault(key, []), item)

    def take(self, key: Key, block: Block) -> None:
        pieces = self.free[key]
        index = bisect.bisect_left(pieces, (block.size, block.address, id(block), block))
        assert pieces[index][3] is block
        pieces.pop(index)


class Simulation:
    def __init__(self, options: Options) -> None:
        self.options, self.rng = options, random.Random(options.seed)
        self.stacks = build_stacks(self.rng, options)
        capacity = options.capacity_mib * MIB
        self.devices = [
            Device(index, capacity, options.expandable) for index in range(options.devices)
        ]
        self.time, self.recording, self.total = 1_790_000_000_000_000, False, 0
        self.peak = [0] * options.devices
        self.peak_by_stack: list[dict[int, int] | None] = [{} for _ in self.devices]
        self.by_stack: list[dict[int, int]] = [{} for _ in self.devices]
        self.oom: dict[str, int] | None = None

    def traceback(self, stack: int) -> Stack | None:
        return list(self.stacks[stack]) if self.recording else None

    def record(
        self,
        device: Device,
        action: str,
        address: int,
        size: int,
        frames: Stack | None,
        pool: Pool = (0, 0),
    ) -> None:
        self.time += self.rng.randrange(1, 9)
        if not self.recording:
            return
        entry: dict[str, Any] = {
            "action": action,
            ("device_free" if action == "oom" else "addr"): address,
            "size": size,
            "stream": 0,
            "time_us": self.time,
            "compile_context": "N/A",
            "user_metadata": "",
            "pool_id": pool,
        }
        if frames is not None:
            entry["frames"] = frames
        device.trace.append(entry)
        device.requested_after.append(device.live_requested)
        device.rounded_after.append(device.live)
        self.total += 1

    def grow(self, device: Device, size: int, key: Key, frames: Stack | None) -> Block | None:
        small, pool = key
        if size <= MIB and small:
            segment_size = 2 * MIB
        elif size < 10 * MIB:
            segment_size = 20 * MIB
        else:
            segment_size = -(-size // (2 * MIB)) * 2 * MIB
        if device.reserved + segment_size > device.capacity:
            return None
        device.reserved += segment_size
        if device.expandable and key in device.tail:
            return self.extend(device, segment_size, key, frames)
        segment = Segment(
            address=device.next_address,
            size=segment_size,
            small=small,
            pool=pool,
            frames=frames or [],
            expandable=device.expandable,
        )
        device.next_address += (1 << 36) if device.expandable else segment_size + 2 * MIB
        segment.first = block = Block(segment.address, segment_size, segment)
        device.segments.append(segment)
        action = "segment_map" if device.expandable else "segment_alloc"
        self.record(device, action, segment.address, segment_size, frames, pool)
        if device.expandable:
            device.tail[key] = (segment, block)
        device.put(key, block)
        return block

    def extend(self, device: Device, size: int, key: Key, frames: Stack | None) -> Block:
        segment, last = device.tail[key]
        block = Block(segment.address + segment.size, size, segment)
        segment.size += size
        block.before, last.after = last, block
        self.record(device, "segment_map", block.address, size, frames, key[1])
        if last.state == "inactive":
            device.take(key, last)
            last.size += size
            last.after = None
            block = last
        device.tail[key] = (segment, block)
        device.put(key, block)
        return block

    def alloc(self, index: int, requested: int, stack: int, pool: Pool = (0, 0)) -> Block | None:
        device = self.devices[index]
        size = max(512, -(-requested // 512) * 512)
        key, frames = (size <= MIB, pool), self.traceback(stack)
        pieces = device.free.setdefault(key, [])
        place = bisect.bisect_left(pieces, (size, 0, 0))
        block = pieces[place][3] if place < len(pieces) else self.grow(device, size, key, frames)
        if block is None or block.size < size:
            if block is None:
                free = max(0, device.capacity - device.reserved)
                self.record(device, "oom", free, requested, frames, pool)
                self.oom = {"device": index, "requested": requested, "device_free": free}
            return None
        device.take(key, block)
        self.split(device, block, size, key)
        block.state, block.requested, block.stack = "active_allocated", requested, stack
        block.frames = frames if frames is not None else []
        device.live += block.size
        device.live_requested += requested
        owned = self.by_stack[index]
        owned[stack] = owned.get(stack, 0) + block.size
        self.record(device, "alloc", block.address, requested, frames, pool)
        if device.live > self.peak[index]:
            self.peak[index] = device.live
            self.peak_by_stack[index] = None  # filled when live bytes first drop
        return block

    def split(self, device: Device, block: Block, size: int, key: Key) -> None:
        fine = key[0] or (self.options.split_like_torch and device.expandable)
        rest = block.size - size
        if rest < (512 if fine else MIB + 1):
            return
        remainder = Block(block.address + size, rest, block.segment)
        remainder.before, remainder.after = block, block.after
        if block.after:
            block.after.before = remainder
        block.after, block.size = remainder, size
        if key in device.tail and device.tail[key][1] is block:
            device.tail[key] = (block.segment, remainder)
        device.put(key, remainder)

    def dealloc(self, index: int, block: Block, stack: int | None = None) -> None:
        device = self.devices[index]
        if self.peak_by_stack[index] is None:
            self.peak_by_stack[index] = dict(self.by_stack[index])
        pool = block.segment.pool
        key = (block.segment.small, pool)
        frames = self.traceback(block.stack if stack is None else stack)
        self.record(device, "free_requested", block.address, block.requested, frames, pool)
        device.live -= block.size
        device.live_requested -= block.requested
        self.record(device, "free_completed", block.address, block.requested, frames, pool)
        self.by_stack[index][block.stack] -= block.size
        block.state, block.requested, block.frames = "inactive", 0, []
        device.put(key, self.merged(device, block, key))

    def merged(self, device: Device, block: Block, key: Key) -> Block:
        for neighbour in (block.after, block.before):
            if neighbour is not None and neighbour.state == "inactive":
                device.take(key, neighbour)
                low, high = (block, neighbour) if neighbour is block.after else (neighbour, block)
                low.size += high.size
                low.after = high.after
                if high.after:
                    high.after.before = low
                if key in device.tail and device.tail[key][1] is high:
                    device.tail[key] = (low.segment, low)
                block = low
        return block

    def run(self) -> None:
        options, rng = self.options, self.rng
        for index in range(options.devices):
            for number in range(options.preexisting):
                self.alloc(index, rng.choice((4 * MIB, 16 * MIB, 4096, 33 * MIB)), number % 20)
        self.recording, step = True, 0
        while self.total < options.entries:
            index = step % options.devices
            held = self.forward(index)
            if self.total >= options.entries and options.oom:
                break  # die in the forward, at the peak
            self.backward(index, held)
            step += 1
        if options.oom:
            self.alloc(step % options.devices, options.capacity_mib * MIB, len(self.stacks) - 1)
        for index, composition in enumerate(self.peak_by_stack):
            if composition is None:
                self.peak_by_stack[index] = dict(self.by_stack[index])
        for device in self.devices:
            self.record(device, "snapshot", 0, 0, None)

    def forward(self, index: int) -> list[Block]:
        options, rng = self.options, self.rng
        held = []
        for layer in range(120):
            base = 20 + (layer * 3) % (len(self.stacks) - 40)
            for part in range(3):
                sizes = (700, 40_000, 3 * MIB, 700_001)
                temporary = [self.alloc(index, rng.choice(sizes), base + part) for _ in range(2)]
                for block in temporary:
                    if block:
                        self.dealloc(index, block)
                pool = (0, 1) if options.pools and layer % 10 == 0 else (0, 0)
                requested = int(rng.choice((8, 12, 2, 0.25)) * MIB * (1 + 0.02 * rng.random()))
                activation = self.alloc(index, requested, base + part, pool)
                if activation:
                    held.append(activation)
            if self.total >= options.entries:
                break
        return held

    def backward(self, index: int, held: list[Block]) -> None:
        last = len(self.stacks)
        for block in reversed(held):
            size = self.rng.choice((1 * MIB, 3 * MIB))
            gradient = self.alloc(index, size, last - 15 + self.rng.randrange(10))
            self.dealloc(index, block, last - 20)
            if gradient:
                self.dealloc(index, gradient)

    def result(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The snapshot, and the truth about it."""
        traces, window = [], []
        for device in self.devices:
            trace, ring = device.trace, self.options.ring
            dropped = max(0, len(trace) - ring) if ring else 0
            traces.append(trace[dropped:])
            first = max(0, dropped - 1)  # the state just before the first kept entry
            window.append(
                {
                    "peak_requested": max(device.requested_after[first:]),
                    "peak_rounded": max(device.rounded_after[first:]),
                }
            )
        snapshot = {
            "segments": [described for device in self.devices for described in _segments(device)],
            "device_traces": traces,
            "allocator_settings": {
                "max_split_size": -1,
                "expandable_segments": self.options.expandable,
                "roundup_power2_divisions": {str(1 << power): 0 for power in range(16)},
            },
        }
        truth = {
            "live": [device.live for device in self.devices],
            "live_requested": [device.live_requested for device in self.devices],
            "reserved": [device.reserved for device in self.devices],
            "window": window,
            "peak_by_stack": self.peak_by_stack,
            "oom": self.oom,
            "stacks": self.stacks,
        }
        return snapshot, truth


def _segments(device: Device) -> Iterator[dict[str, Any]]:
    for segment in sorted(device.segments, key=lambda segment: segment.address):
        blocks, block = [], segment.first
        while block:
            blocks.append(
                {
                    "address": block.address,
                    "size": block.size,
                    "requested_size": block.requested,
                    "state": block.state,
                    "frames": block.frames,
                }
            )
            block = block.after
        yield {
            "device": device.index,
            "address": segment.address,
            "total_size": segment.size,
            "stream": 0,
            "segment_type": "small" if segment.small else "large",
            "segment_pool_id": segment.pool,
            "is_expandable": segment.expandable,
            "frames": segment.frames,
            "blocks": blocks,
        }


def make_snapshot(options: Options) -> tuple[dict[str, Any], dict[str, Any]]:
    """Simulate, and return the snapshot with its truth."""
    simulation = Simulation(options)
    simulation.run()
    return simulation.result()
