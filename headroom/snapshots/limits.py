"""How much memory and time the child may take that reads a file from a stranger."""

from dataclasses import dataclass
from typing import Final

from headroom.units import GIB, MIB

# Interpreter, our modules and the account of a small file; measured 60 MiB resident, 230 MiB of address space.
BASE_ADDRESS_SPACE_BYTES: Final = 400 * MIB
# torch's files take 3.6 to 8 times their size as dictionaries (frames shared by all entries take the most).
ADDRESS_SPACE_PER_FILE_BYTE: Final = 16
# A small file that takes longer was made to take long: every capture here is read in a tenth of a second.
BASE_CPU_SECONDS: Final = 3
# torch's files take about 25 ms a megabyte on one core of a laptop; machines and days differ.
CPU_SECONDS_PER_MIB: Final = 0.25
# The process that waits gives more: the child may wait for a disk or for a core.
WALL_PER_CPU: Final = 5
MAX_FILE_BYTES: Final = 16 * GIB


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one reading may take."""

    address_space_bytes: int
    cpu_seconds: int
    wall_seconds: float


def limits_for(file_bytes: int) -> Limits:
    """Limits in proportion to the file: what torch writes never comes near them."""
    cpu_seconds = BASE_CPU_SECONDS + int(CPU_SECONDS_PER_MIB * file_bytes / MIB)
    return Limits(
        address_space_bytes=BASE_ADDRESS_SPACE_BYTES + ADDRESS_SPACE_PER_FILE_BYTE * file_bytes,
        cpu_seconds=cpu_seconds,
        wall_seconds=float(cpu_seconds * WALL_PER_CPU),
    )
