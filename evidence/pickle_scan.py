"""Reads the opcodes of a pickle without running one, and refuses what no allocator snapshot needs.

torch's snapshots hold dict, list, tuple, str, int, float, bool and None only. Everything else that a pickle can say is
refused here, before the unpickler sees a byte: imports and calls, persistent ids, the extension registry, bytes
and sets, the text opcodes of protocols 0 and 1, long integers over nine bytes, memo indices that the file is too
short for (nine bytes with memo index 2**27 make the unpickler claim 2 GB), and files that are mostly containers (a list
of empty lists takes ninety times its file in memory).

The unpickler's opcodes are listed in the standard library's `pickletools`.
"""

import pickletools
import re
from typing import Final

from headroom.errors import SnapshotError

_PROTO: Final = 0x80
_STOP: Final = ord(".")
_NEWEST_PROTOCOL: Final = 5

# Opcodes of one byte that make a container of 56 bytes and more: EMPTY_LIST, EMPTY_DICT, TUPLE1. Snapshots have one for
# every 20 bytes of file or more; bytes of other things are counted too, so the bound is generous.
_CONTAINERS: Final = (b"]", b"}", b"\x85")
_BYTES_PER_CONTAINER: Final = 5
_FREE_CONTAINERS: Final = 4096

# Length field of the three string opcodes: (width of the length, in bytes, little endian).
_STRING_LENGTH: Final = {0x8C: 1, ord("X"): 4, 0x8D: 8}

# Allowed opcodes with an argument of fixed length: where the scan stops at one, its argument is missing.
_CUT_SHORT: Final = frozenset(
    {"BINGET", "LONG_BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINFLOAT", "FRAME"}
)
_OPCODE_NAMES: Final = {ord(op.code): op.name for op in pickletools.opcodes}

# Alternatives begin with distinct literals where it matters: the regex engine then skips a branch by one comparison,
# and a run of opcodes is read at about 130 MB/s. LONG1 holds integers of up to nine bytes (an unsigned 64-bit address).
_FIXED_OPCODES: Final = (
    rb"h.|j....|[}\](us\x94eat\x85-\x87N\x88\x89)]|K.|M..|J....|q.|G.{8}|\x95.{8}|"
    + b"|".join(b"\\x8a\\x%02x.{%d}" % (width, width) for width in range(1, 10))
)


def check_opcodes(data: bytes) -> None:
    """Refuse a pickle that holds more than plain data, or that is torn.

    Args:
        data: The whole file.

    Raises:
        SnapshotError: With one sentence on what was found.
    """
    _check_start(data)
    containers = sum(data.count(opcode) for opcode in _CONTAINERS)
    if containers > _FREE_CONTAINERS + len(data) // _BYTES_PER_CONTAINER:
        raise SnapshotError(
            "The snapshot file is refused: it is made of far more containers than allocator data."
        )
    run_of_fixed_opcodes = _fixed_run(len(data)).match
    position, size = 2, len(data)
    while position < size:
        match = run_of_fixed_opcodes(data, position)
        position = match.end() if match else position
        opcode = data[position] if position < size else -1
        width = _STRING_LENGTH.get(opcode)
        if width is None:
            if opcode == _STOP:
                return
            raise SnapshotError(_fault(data, position))
        start = position + 1 + width
        position = start + int.from_bytes(data[position + 1 : start], "little")
    raise SnapshotError("The snapshot file is torn: it ends in the middle of the data.")


def _check_start(data: bytes) -> None:
    if not data:
        raise SnapshotError("The snapshot file is empty.")
    if data[:2] == b"PK":
        raise SnapshotError(
            "The file is a zip archive, as torch.save writes, and not an allocator snapshot."
        )
    if data[0] != _PROTO or len(data) < 2 or not 2 <= data[1] <= _NEWEST_PROTOCOL:
        raise SnapshotError(
            "The file is not a pickle of protocol 2 to 5, so it is no allocator snapshot."
        )


def _fixed_run(size: int) -> re.Pattern[bytes]:
    """The longest run of allowed opcodes without text, for a file of `size` bytes."""
    # A memo entry costs at least two bytes of file (push and PUT), so an index over half the size can only be a bomb.
    bits = max(size // 2, 255).bit_length()
    index = b"".join(_bounded_byte(bits - 8 * place) for place in range(4))
    return re.compile(rb"(?:" + _FIXED_OPCODES + rb"|r" + index + rb")*+", re.DOTALL)


def _bounded_byte(bits: int) -> bytes:
    """A pattern for one byte of which only the lowest `bits` bits may be set."""
    highest = (1 << min(max(bits, 0), 8)) - 1
    return b"[\\x00-\\x%02x]" % highest


def _fault(data: bytes, position: int) -> str:
    """One sentence on the opcode at `position`, which is not allowed or is cut short."""
    opcode = data[position] if position < len(data) else -1
    name = _OPCODE_NAMES.get(opcode)
    if opcode == -1 or name in _CUT_SHORT:
        return "The snapshot file is torn: it ends in the middle of the data."
    if name is None:
        return f"The snapshot file is damaged: byte {position} is no pickle opcode."
    if name == "LONG_BINPUT" and position + 5 <= len(data):
        return f"The snapshot file is refused: byte {position} asks for a memo far larger than the file."
    return (
        f"The snapshot file is refused: byte {position} is the pickle opcode {name}, "
        "which plain allocator data never needs."
    )
