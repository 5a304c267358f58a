"""One device of a snapshot with all that is known of it: the replay, the owners, the ticks, the names."""

from collections.abc import Sequence
from dataclasses import dataclass

from headroom.evidence.account.names import NameWalk, StorageName, match_names
from headroom.evidence.account.owners import Owners, find_owners
from headroom.evidence.account.replay import Replay, replay_device
from headroom.evidence.account.ticks import Ticks, read_ticks
from headroom.evidence.reading.snapshot import Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFacts:
    """What is known of one device, `device`, from outside the snapshot.

    `total_bytes` is the device's own size, `non_torch_bytes` what was held beside the allocator when the program ended.
    `ring_full` says whether the history's ring had wrapped before the dump. `cap_bytes` is a cap that
    Headroom itself set. Each is None where nobody tells.
    """

    device: int = 0
    total_bytes: int | None = None
    non_torch_bytes: int | None = None
    ring_full: bool | None = None
    cap_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """Everything that the ledger and the explanations of one device are made from.

    `names` gives the recorder's name of the storage by row of `replay.lives`.
    """

    replay: Replay
    owners: Owners
    ticks: Ticks
    names: dict[int, StorageName]
    facts: DeviceFacts
    roots: tuple[str, ...]


def account_for(
    snapshot: Snapshot,
    device: int,
    *,
    roots: tuple[str, ...] = (),
    walks: Sequence[NameWalk] = (),
    facts: DeviceFacts | None = None,
) -> Account:
    """Replay a device and find owners, ticks and names.

    Args:
        snapshot: A snapshot, ours or anybody's.
        device: Index of the device.
        roots: Folders of the program, which tell the user's frames from those of libraries.
        walks: What the recorder named, walk by walk.
        facts: What else is known of the device.

    Raises:
        SnapshotError: The sizes add up to more than 64 bits hold.
    """
    if facts is None or facts.device != device:
        facts = DeviceFacts(device=device)
    replay = replay_device(snapshot, device)
    return Account(
        replay=replay,
        owners=find_owners(replay, ring_full=facts.ring_full),
        ticks=read_ticks(replay.history),
        names=match_names(replay, walks),
        facts=facts,
        roots=roots,
    )
