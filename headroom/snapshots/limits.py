"""How much memory and time the child may take that reads a file from a stranger."""

from dataclasses import dataclass
from typing import Final

from headroom.units import GIB, KIB, MIB

# Interpreter, our modules and the account of a small file; measured 60 MiB resident, 230 MiB of address space.
BASE_ADDRESS_SPACE_BYTES: Final = 400 * MIB
# torch's files take 3.6 to 8 times their size as dictionaries (frames shared by all entries take the most).
ADDRESS_SPACE_PER_FILE_BYTE: Final = 16
# A small file that takes longer was made to take long: every capture here is read in a tenth of a second.
BASE_CPU_SECONDS: Final = 4
# torch's files take about 25 ms a megabyte on one core of a laptop, and 300 ms where every stack is another; machines
# and days differ.
CPU_SECONDS_PER_MIB: Final = 0.75
# The process that waits gives more: the child may wait for a disk or for a core.
WALL_PER_CPU: Final = 5
NAMES_PER_CPU_SECOND: Final = 20_000
ADDRESS_SPACE_PER_NAME_BYTES: Final = 2 * KIB
MAX_FILE_BYTES: Final = 16 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one reading may take."""

    address_space_bytes: int
    cpu_seconds: int
    wall_seconds: float


def limits_for(file_bytes: int, names: int = 0) -> Limits:
    """Limits in proportion to the file, and to the names that our own recorder saw: what torch writes never comes near.

    Args:
        file_bytes: Size of the uncompressed file.
        names: Storages in all walks of the recorder.
    """
    cpu_seconds = BASE_CPU_SECONDS + int(
        CPU_SECONDS_PER_MIB * file_bytes / MIB + names / NAMES_PER_CPU_SECOND
    )
    address_space = BASE_ADDRESS_SPACE_BYTES + ADDRESS_SPACE_PER_FILE_BYTE * file_bytes
    return Limits(
        address_space_bytes=address_space + ADDRESS_SPACE_PER_NAME_BYTES * names,
        cpu_seconds=cpu_seconds,
        wall_seconds=float(cpu_seconds * WALL_PER_CPU),
    )
