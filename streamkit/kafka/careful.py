"""A record batch read once more, in plain Python, after the client's parser gave it up.

Anybody who may write to a topic can write a batch that a broker takes and a client chokes on. Here its records come one
by one, as far as they can be read, and the rest comes as one `Unreadable`. Slow, and only for such batches.
"""

import struct
from collections.abc import Iterator

import msgspec

from streamkit.model.records import Headers, Unreadable

# base offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and max timestamp, producer id,
# producer epoch, base sequence, count
HEADER = struct.Struct(">qiibIhiqqqhii")

_INT64 = 1 << 64
_VARINT_BYTES_MAX = 10

Bytes = bytes | bytearray | memoryview


class CarefulRecord(msgspec.Struct, gc=False):
    """A record of such a batch; keeps the promises of `LogRecord`.

    A header's name that is no UTF-8 is shown with its bytes escaped, as `backslashreplace` does it; its value is as it was.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


def read_carefully(batch: Bytes, next_offset: int) -> Iterator[CarefulRecord | Unreadable]:
    """The records of a batch that is not compressed, in order; what cannot be read ends it.

    Offsets that do not rise, or that lie outside the batch, count as damage: positions are made of them.
    """
    base_offset, *_, base_timestamp, max_timestamp, _, _, _, count = HEADER.unpack_from(batch)
    at, least = HEADER.size, base_offset
    for _ in range(count):  # a count that lies costs nothing: every record takes bytes, and they end
        begun = at
        try:
            record, at = _record(batch, at, base_offset, base_timestamp)
            _require_between(least, record.offset, next_offset)
        except (ValueError, IndexError) as error:
            if begun < len(batch) or least < next_offset:
                reason = f"a record of the batch at offset {base_offset} is damaged: {error}"
                at = min(least, next_offset - 1)
                yield Unreadable(at, next_offset, len(batch) - begun, max_timestamp, reason)
            return
        yield record
        least = record.offset + 1
    if at != len(batch) and least < next_offset:
        reason = f"the batch at offset {base_offset} has bytes behind the last record that it counts"
        yield Unreadable(least, next_offset, len(batch) - at, max_timestamp, reason)


def _record(batch: Bytes, at: int, base_offset: int, base_timestamp: int) -> tuple[CarefulRecord, int]:
    length, at = _varint(batch, at)
    end = at + length
    if length < 0 or end > len(batch):
        raise ValueError(f"it claims to have {length} bytes")
    at += 1  # attributes, of which there are none
    timestamp_delta, at = _varint(batch, at)
    offset_delta, at = _varint(batch, at)
    key, at = _content(batch, at, end)
    value, at = _content(batch, at, end)
    headers, at = _headers(batch, at, end)
    if at != end:
        raise ValueError(f"it claims to have {length} bytes, and has {length + at - end}")
    timestamp = _as_int64(base_timestamp + timestamp_delta)
    return CarefulRecord(base_offset + offset_delta, timestamp, key, value, headers), at


def _require_between(least: int, offset: int, end: int) -> None:
    if not least <= offset < end:
        raise ValueError(f"it claims the offset {offset}")


def _headers(batch: Bytes, at: int, end: int) -> tuple[Headers, int]:
    count, at = _varint(batch, at)
    if not 0 <= count <= end - at:
        raise ValueError(f"it claims to have {count} headers")
    headers: Headers = []
    for _ in range(count):
        name, at = _content(batch, at, end)
        if name is None:
            raise ValueError("a header has no name")
        content, at = _content(batch, at, end)
        headers.append((name.decode(errors="backslashreplace"), content))
    return headers, at


def _content(batch: Bytes, at: int, end: int) -> tuple[bytes | None, int]:
    size, at = _varint(batch, at)
    if size < 0:
        return None, at
    if size > end - at:
        raise ValueError(f"{size} bytes do not fit into it")
    return bytes(batch[at : at + size]), at + size


def _varint(batch: Bytes, at: int) -> tuple[int, int]:
    raw = 0
    for index in range(_VARINT_BYTES_MAX):
        byte = batch[at + index]
        raw |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at + index + 1
    raise ValueError("a number does not end")


def _as_int64(number: int) -> int:
    """A number as the client's parser would show it, which counts in 64 bits."""
    return (number + _INT64 // 2) % _INT64 - _INT64 // 2
