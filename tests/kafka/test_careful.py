"""Batches that somebody has garbled, with a right checksum: what can be read is read, the rest is told, nothing else comes out."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.kafka.careful import CarefulRecord
from streamkit.kafka.record_batches import Chunk, CorruptBatch
from streamkit.model.records import FetchedBatch, LogRecord, Unreadable
from streamkit.task.fetched import FetchedRecords
from tests.kafka.test_record_batches import ALL, PLACE, batch, patched

HEADER_BYTES = 61
EXTREMES = (-1, -2, 0, 1, 2, 5, 127, 2**31 - 1, 2**31, 2**62, 2**63 - 40, 2**63 - 1, -(2**63))


def varint(number: int) -> bytes:
    raw = ((number << 1) ^ (number >> 63)) & (2**64 - 1)
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes((*out, raw))


def record(value: bytes, offset_delta: int = 0, name: bytes = b"h", timestamp_delta: int = 0) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + varint(-1)
    body += varint(len(value)) + value + varint(1) + varint(len(name)) + name + varint(1) + b"w"
    return varint(len(body)) + body


def made(*records: bytes, base: int = 0, count: int | None = None, last: int | None = None) -> bytes:
    """A batch of these records as they are; the header may lie about them."""
    data = bytearray(batch(base, [b"x"])[:HEADER_BYTES] + b"".join(records))
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 23, len(records) - 1 if last is None else last)
    struct.pack_into(">i", data, 57, len(records) if count is None else count)
    return patched(bytes(data), base)


def walk(fetched: FetchedBatch, limit: int = 2) -> tuple[list[LogRecord], list[Unreadable]]:
    """What the runtime sees of a batch: slices until it is done, and a position that only rises."""
    records = FetchedRecords(fetched, fetched.next_offset)
    read: list[LogRecord] = []
    stretches: list[Unreadable] = []
    position = fetched.first_offset
    for _ in range(fetched.size_bytes + 10):  # every step takes bytes
        if records.is_done:
            return read, stretches
        if records.unreadable is not None:
            after = records.unreadable.next_offset
            stretches.append(records.unreadable)
            records.unreadable = None
        else:
            found = records.take(limit, position)
            read += found
            after = found[-1].offset + 1 if found else position
        assert position <= after <= fetched.next_offset
        position = after
    raise AssertionError("it does not end")


def test_a_header_name_that_is_no_text_costs_no_record() -> None:
    data = made(record(b"a"), record(b"b", 1, b"\xff\xfe"), record(b"c", 2))
    read, stretches = walk(Chunk(PLACE, 0, data).take(ALL))
    assert [each.value for each in read] == [b"a", b"b", b"c"]
    assert list(read[1].headers) == [("\\xff\\xfe", b"w")]
    assert stretches == []


def test_the_rest_of_a_batch_behind_a_damaged_record_is_one_stretch() -> None:
    good = batch(0, [b"before"])
    data = made(record(b"a"), b"\x7f" + record(b"b", 1), record(b"c", 2), base=1)
    read, (stretch,) = walk(Chunk(PLACE, 0, good + data + batch(4, [b"after"])).take(ALL))
    assert [each.value for each in read] == [b"before", b"a", b"after"]
    assert (stretch.offset, stretch.next_offset) == (2, 4)
    assert "the batch at offset 1 is damaged" in stretch.reason


@pytest.mark.parametrize("deltas", [(0, -1), (0, 2**40), (1, 0), (0, 0), (2**40, 2**41)])
def test_offsets_that_cannot_be_never_move_a_position(deltas: tuple[int, int]) -> None:
    data = made(record(b"a", deltas[0]), record(b"b", deltas[1]), base=10)
    read, stretches = walk(Chunk(PLACE, 10, data).take(ALL))
    assert len(stretches) == 1
    assert all(10 <= each.offset < 12 for each in read)


def test_records_that_claim_to_lie_before_their_batch_are_taken_for_read() -> None:
    fetched = Chunk(PLACE, 10, made(record(b"a", -5), record(b"b", -4), base=10)).take(ALL)
    assert walk(fetched) == ([], [])
    assert fetched.next_offset == 12


@pytest.mark.parametrize("limit", range(1, 6))
@pytest.mark.parametrize("delta", [1, 2, 3, 2**40])
def test_a_slice_never_ends_at_the_offset_of_a_later_record(limit: int, delta: int) -> None:
    others = [batch(4, [b"c", b"d"]), batch(6, [b"e"])]
    data = batch(0, [b"0", b"1"]) + made(record(b"a"), record(b"liar", 1 + delta), base=2) + b"".join(others)
    read, _ = walk(Chunk(PLACE, 0, data).take(ALL), limit)
    assert [each.value for each in read if each.value != b"liar"] == [b"0", b"1", b"a", b"c", b"d", b"e"]


def test_a_batch_that_claims_to_end_before_its_records_moves_no_position_behind_that_end() -> None:
    data = made(record(b"a"), record(b"b", 1), record(b"c", 2), record(b"d", 3), base=3, last=0)
    read, (stretch,) = walk(Chunk(PLACE, 3, data).take(ALL))
    assert [each.value for each in read] == [b"a"]
    assert (stretch.offset, stretch.next_offset) == (3, 4)


def test_a_record_that_lies_between_others_is_found_when_it_is_asked_for_or_looked_for() -> None:
    data = batch(0, [b"a"]) + made(record(b"liar", 5), base=1) + batch(2, [b"b", b"c"])
    records = FetchedRecords(Chunk(PLACE, 0, data).take(ALL), 4)
    assert [each.value for each in records.take(4, 0)] == [b"a", b"liar", b"b", b"c"]
    assert records.lies()
    assert not records.lies()
    careful = FetchedRecords(Chunk(PLACE, 0, data).take(ALL), 4)
    assert [each.value for each in careful.take(4, 0, is_each_proven=True)] == [b"a"]
    assert careful.unreadable is not None
    assert (careful.unreadable.offset, careful.unreadable.next_offset) == (1, 2)
    honest = FetchedRecords(Chunk(PLACE, 0, batch(0, [b"a", b"b"])).take(ALL), 2)
    assert len(honest.take(2, 0)) == 2
    assert not honest.lies()


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_count_that_lies_is_found_out(count: int) -> None:
    read, stretches = walk(Chunk(PLACE, 0, made(record(b"a"), record(b"b", 1), count=count)).take(ALL))
    assert [each.value for each in read] == [b"a", b"b"][: max(0, count)]
    assert [each.next_offset for each in stretches] == ([] if count > 2 else [2])


def test_a_timestamp_counts_in_64_bits_as_the_parser_does() -> None:
    data = made(record(b"a", 0, b"\xff", 2**63 - 1))
    (read,), _ = walk(Chunk(PLACE, 0, data).take(ALL))
    assert isinstance(read, CarefulRecord)
    assert -(2**63) <= read.timestamp < 0


@pytest.mark.parametrize("field", range(7))
@pytest.mark.parametrize("number", EXTREMES)
def test_no_length_fells_the_parser(field: int, number: int) -> None:
    parts = [
        varint(20),
        b"\0" + varint(0),
        varint(0),
        varint(1),
        b"k" + varint(1),
        b"v" + varint(1),
        varint(1),
    ]
    parts[field] = parts[field][:-1] + varint(number)
    data = made(b"".join(parts) + b"h" + varint(1) + b"w")
    walk(Chunk(PLACE, 0, data).take(ALL))


@given(
    st.integers(0, 4),
    st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255)), min_size=1, max_size=6),
    st.sampled_from((None, *EXTREMES[:8])),
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 12)), max_size=3),
)
def test_only_the_declared_error_comes_out_of_garbage(
    codec: int, flips: list[tuple[int, int]], count: int | None, aborted: list[tuple[int, int]]
) -> None:
    data = bytearray(batch(3, [b"value %d" % number * number for number in range(6)], codec=codec))
    struct.pack_into(">q", data, 43, 2)  # of a producer, so that transactions are looked at
    for at, byte in flips:
        if at != 16 and not 0 <= at < 12:  # its place and its length are the broker's
            data[at % len(data)] = byte
    if count is not None:
        struct.pack_into(">i", data, 57, max(-(2**31), min(count, 2**31 - 1)))
    garbled = patched(bytes(data), 3)
    whole = batch(2, [b"before"]) + garbled + batch(struct.unpack_from(">i", garbled, 23)[0] + 4, [b"after"])
    try:
        chunk = Chunk(PLACE, 2, whole, aborted)
        taken = []
        while not chunk.done:
            taken.append(chunk.take(100))
    except CorruptBatch:
        return
    read = [walk(each) for each in taken]
    if not aborted:
        assert next(each.value for found, _ in read for each in found) == b"before"


@given(st.binary(max_size=300), st.integers(-5, 5))
def test_arbitrary_bytes_are_no_batches(data: bytes, position: int) -> None:
    with contextlib.suppress(CorruptBatch):
        chunk = Chunk(PLACE, position, data)
        while not chunk.done:
            walk(chunk.take(ALL))
