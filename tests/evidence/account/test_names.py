"""Names belong to the life that was at the address at that moment."""

from headroom.evidence.account.account import account_for
from headroom.evidence.account.names import NameWalk, StorageName
from headroom.evidence.analysis import analyse
from headroom.evidence.model import Category, Holder
from headroom.evidence.reading.snapshot import Snapshot, parse_snapshot
from tests.evidence.reference_allocator import MIB, Allocator


def two_lives() -> tuple[Snapshot, int]:
    """An address that is allocated, freed, and allocated again; entries are 10 microseconds apart."""
    allocator = Allocator()
    first = allocator.malloc(8 * MIB)
    allocator.free(first)
    second = allocator.malloc(8 * MIB)
    assert first.address == second.address
    tree = allocator.snapshot()
    for index, entry in enumerate(tree["device_traces"][0]):
        entry["time_us"] = 1000 + 10 * index
    return parse_snapshot(tree), first.address


def walk(time_us: int, address: int, name: str, category: Category = "parameter") -> NameWalk:
    holder = Holder(kind="attribute", name="self.w", file="m.py", line=3, function="Net")
    storage = StorageName(
        device=0, address=address, size_bytes=8 * MIB, category=category, name=name, holder=holder
    )
    return NameWalk(time_us=time_us, storages=(storage,))


def test_a_reused_address_gets_the_name_of_its_time() -> None:
    snapshot, address = two_lives()
    walks = [walk(1012, address, "first"), walk(1100, address, "second")]
    account = account_for(snapshot, 0, walks=walks)
    born = {account.replay.lives.born[row]: name.name for row, name in account.names.items()}
    assert born == {1: "first", 4: "second"}


def test_nothing_is_named_where_nothing_was_allocated_at_the_time() -> None:
    snapshot, address = two_lives()
    assert account_for(snapshot, 0, walks=[walk(1035, address, "between")]).names == {}
    assert account_for(snapshot, 0, walks=[walk(1100, address + 512, "beside")]).names == {}


def test_the_last_walk_that_names_a_life_names_it() -> None:
    snapshot, address = two_lives()
    walks = [walk(1100, address, "x", "variable"), walk(1200, address, "history[0]", "variable")]
    (name,) = account_for(snapshot, 0, walks=walks).names.values()
    assert name.name == "history[0]"


def test_another_device_has_names_of_its_own() -> None:
    snapshot, address = two_lives()
    other = walk(1100, address, "w").storages[0]
    walks = [NameWalk(time_us=1100, storages=(StorageName(
        device=1, address=other.address, size_bytes=other.size_bytes, category="buffer", name="b"
    ),))]  # fmt: skip
    assert account_for(snapshot, 0, walks=walks).names == {}


def test_the_ledger_carries_name_category_and_holder() -> None:
    snapshot, address = two_lives()
    ledger = analyse(snapshot, walks=[walk(1012, address, "Net.w")]).main.ledger
    (block,) = ledger.blocks
    assert (block.name, block.category, block.inferred) == ("Net.w", "parameter", False)
    assert block.holder is not None
    assert block.holder.name == "self.w"
    assert ledger.named_bytes == 8 * MIB
    assert analyse(snapshot).main.ledger.named_bytes == 0
