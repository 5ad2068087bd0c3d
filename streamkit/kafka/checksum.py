"""CRC-32C of what was fetched, with the processor's own instruction: the client's tables take ten times as long."""

from collections.abc import Callable

import google_crc32c
from aiokafka.record.util import calc_crc32c

Checksum = Callable[[memoryview], int]

# The library takes `bytes` only. Pieces of this size are copied within the processor's cache, which costs little.
_PIECE_BYTES = 64 * 1024


def _by_pieces(data: memoryview) -> int:
    size = len(data)
    if size <= _PIECE_BYTES:
        return int(google_crc32c.value(data.tobytes()))
    crc = 0
    for at in range(0, size, _PIECE_BYTES):
        crc = google_crc32c.extend(crc, data[at : at + _PIECE_BYTES].tobytes())
    return crc


def _by_tables(data: memoryview) -> int:
    crc: int = calc_crc32c(data)
    return crc


# Where the library has no compiled part it is plain Python, and far slower than the client.
crc32c: Checksum = _by_pieces if google_crc32c.implementation == "c" else _by_tables
