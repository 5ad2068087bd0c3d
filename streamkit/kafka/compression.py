"""Compressed record batches, opened within a bound: a few kilobytes must not be able to fill the memory.

Called by `record_batches.py` for batches whose writer compressed them. The output is written behind some free room,
where the caller puts the header of an uncompressed batch, so that nothing is copied twice.
"""

import struct
import zlib
from collections.abc import Callable

import cramjam

# The most a batch may grow to. Brokers refuse batches above 1 MiB unless told otherwise, and real data shrinks 3 to
# 20 times, so a batch beyond this was made to hurt.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4

_FIRST_GUESS_MIN = 64 * 1024
_GROWTH = 4
_GZIP_FRAME = 31  # what zlib calls a gzip header with the largest window
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER_BYTES = 16
_INT32 = struct.Struct(">i")

DecompressInto = Callable[[memoryview, memoryview], int]


def decompress(
    codec: int, data: memoryview, *, room: int, size_max: int = DECOMPRESSED_BYTES_MAX
) -> bytearray:
    """The decompressed bytes of `data`, behind `room` zero bytes.

    Raises:
        ValueError: the data is damaged, larger than `size_max`, or of a codec that Kafka does not have.
    """
    try:
        if codec == GZIP:
            return _gzip(data, room, size_max)
        if codec == SNAPPY:
            return _snappy(data, room, size_max)
        if codec == LZ4:
            return _grown(cramjam.lz4.decompress_into, data, room, size_max)
        if codec == ZSTD:
            return _grown(cramjam.zstd.decompress_into, data, room, size_max)
    except (cramjam.DecompressionError, zlib.error, struct.error) as error:
        raise ValueError(f"its compressed data is damaged: {error}") from error
    raise ValueError(f"its compression has the number {codec}, which is not one of Kafka's")


def _too_large(size_max: int) -> ValueError:
    return ValueError(f"it is larger than {size_max} bytes when decompressed")


def _gzip(data: memoryview, room: int, size_max: int) -> bytearray:
    stream = zlib.decompressobj(_GZIP_FRAME)
    content = stream.decompress(data, size_max + 1)
    if len(content) > size_max:
        raise _too_large(size_max)
    if not stream.eof:
        raise ValueError("its compressed data is cut off")
    return bytearray(room) + content


def _grown(into: DecompressInto, data: memoryview, room: int, size_max: int) -> bytearray:
    """Codecs that do not say their size: try with more and more space, up to the bound."""
    capacity = min(size_max, max(_FIRST_GUESS_MIN, _GROWTH * len(data)))
    while True:
        output = bytearray(room + capacity)
        try:
            with memoryview(output) as whole, whole[room:] as free:
                size = into(data, free)
        except cramjam.DecompressionError as error:
            if "write whole buffer" not in str(error):
                raise
        else:
            del output[room + size :]
            return output
        if capacity >= size_max:
            raise _too_large(size_max)
        capacity = min(size_max, capacity * _GROWTH)


def _snappy(data: memoryview, room: int, size_max: int) -> bytearray:
    """Raw snappy, or blocks of it in the frame that Java clients write."""
    framed = data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC
    blocks = _xerial_blocks(data) if framed else [data]
    sizes = [cramjam.snappy.decompress_raw_len(block) for block in blocks]
    if sum(sizes) > size_max:
        raise _too_large(size_max)
    output = bytearray(room + sum(sizes))
    at = room
    with memoryview(output) as whole:
        for block, size in zip(blocks, sizes, strict=True):
            with whole[at : at + size] as free:
                cramjam.snappy.decompress_raw_into(block, free)
            at += size
    return output


def _xerial_blocks(data: memoryview) -> list[memoryview]:
    blocks = []
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        (size,) = _INT32.unpack_from(data, at)
        at += 4
        if not 0 <= size <= len(data) - at:
            raise ValueError("its compressed data is cut off")
        blocks.append(data[at : at + size])
        at += size
    return blocks
