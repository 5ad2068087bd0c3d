"""Bytes of a fetch, made here batch by batch, and what may come out of them."""

import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import Misconfigured
from streamkit.kafka.broker_fetch import BrokerFetch
from streamkit.kafka.fetch_buffer import Feed, FetchBuffer
from streamkit.kafka.fetch_calls import Fetched, FetchLimits
from streamkit.kafka.record_batches import Chunk
from streamkit.model.ids import TopicPartition
from streamkit.model.records import Unreadable

PLACE = TopicPartition("orders", 3)
ALL = 1 << 30
LOG_APPEND_TIME = 0x08
CONTROL = 0x20


def batch(
    base: int, values: list[bytes], *, codec: int = 0, producer: int = -1, attributes: int = 0
) -> bytes:
    transactional = int(producer >= 0)
    builder = DefaultRecordBatchBuilder(2, codec, transactional, producer, 0, 0, 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, 1000 + number, b"key", value, [("h", b"x"), ("none", None)])
    return patched(bytes(builder.build()), base, attributes)


def patched(data: bytes, base: int, attributes: int = 0) -> bytes:
    changed = bytearray(data)
    struct.pack_into(">q", changed, 0, base)
    struct.pack_into(">h", changed, 21, struct.unpack_from(">h", changed, 21)[0] | attributes)
    struct.pack_into(">I", changed, 17, calc_crc32c(bytes(changed[21:])))
    return bytes(changed)


def marker(base: int, producer: int, *, commit: bool) -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 1, producer, 0, 0, 1000)
    builder.append(0, 1000, struct.pack(">hh", 0, int(commit)), b"\0\0\0\0\0\0", [])
    return patched(bytes(builder.build()), base, CONTROL)


def values(data: bytes, position: int = 0, aborted: list[tuple[int, int]] | None = None) -> list[bytes]:
    taken = Chunk(PLACE, position, data, aborted or []).take(ALL)
    return [record.value for record in taken.records if record.offset >= taken.first_offset]


def test_batches_come_out_as_one_in_order() -> None:
    chunk = Chunk(PLACE, 5, batch(5, [b"a", b"b"]) + batch(7, [b"c"]))
    taken = chunk.take(ALL)
    records = [(record.offset, record.timestamp, record.key, record.value) for record in taken.records]
    assert records == [(5, 1000, b"key", b"a"), (6, 1001, b"key", b"b"), (7, 1000, b"key", b"c")]
    assert (taken.partition, taken.first_offset, taken.next_offset) == (PLACE, 5, 8)
    assert chunk.next_offset == 8
    assert chunk.done


def test_headers_come_back_with_null_values() -> None:
    (record,) = Chunk(PLACE, 0, batch(0, [b"a"])).take(ALL).records
    assert list(record.headers) == [("h", b"x"), ("none", None)]


def test_a_position_inside_a_batch_is_told_by_its_first_offset() -> None:
    assert values(batch(10, [b"a", b"b", b"c"]), position=11) == [b"b", b"c"]


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_compressed_batch_is_opened(codec: int) -> None:
    wanted = [b"value %d" % number for number in range(1000)]
    assert values(batch(0, wanted, codec=codec)) == wanted


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_log_append_time_still_gives_the_writers_timestamps(codec: int) -> None:
    data = bytearray(batch(0, [b"a", b"b"], codec=codec))
    struct.pack_into(
        ">q", data, 35, 777_777
    )  # what the broker does: its clock as the largest timestamp, and the flag
    data = patched(bytes(data), 0, LOG_APPEND_TIME)
    assert [record.timestamp for record in DefaultRecordBatch(data)] == [777_777, 777_777]
    assert [record.timestamp for record in Chunk(PLACE, 0, data).take(ALL).records] == [1000, 1001]


def test_a_cut_off_batch_at_the_end_is_left_to_the_next_fetch() -> None:
    first, second = batch(0, [b"a"]), batch(1, [b"b"])
    for kept in range(len(second)):
        chunk = Chunk(PLACE, 0, first + second[:kept])
        assert chunk.next_offset == 1
        assert [record.value for record in chunk.take(ALL).records] == [b"a"]


def test_nothing_whole_is_done_at_once() -> None:
    assert Chunk(PLACE, 4, batch(4, [b"a"])[:-1]).done


@given(st.integers(21, 200), st.integers(1, 255))
def test_a_flipped_bit_anywhere_under_the_checksum_is_found(at: int, flip: int) -> None:
    data = bytearray(batch(0, [b"v" * 200]))
    data[at] ^= flip
    with pytest.raises(Misconfigured) as raised:  # a damaged offset delta is seen when the bytes are cut
        Chunk(PLACE, 0, bytes(data)).take(ALL)
    assert raised.value.where == "orders[3]"


def test_good_batches_are_handed_out_before_a_damaged_one_is_reported() -> None:
    bad = bytearray(batch(1, [b"b"]))
    bad[-1] ^= 1
    chunk = Chunk(PLACE, 0, batch(0, [b"a"]) + bytes(bad) + batch(2, [b"c"]))
    taken = chunk.take(ALL)
    assert [record.value for record in taken.records] == [b"a"]
    assert taken.next_offset == 1
    for _ in range(2):
        with pytest.raises(Misconfigured, match="offset 1 cannot be read: its checksum"):
            chunk.take(ALL)


def test_what_cannot_be_decompressed_comes_by_itself_with_its_place() -> None:
    data = bytearray(batch(7, [b"x" * 5000], codec=4))
    data[-9:] = b"\xff" * 9
    whole = batch(6, [b"a"]) + patched(bytes(data), 7) + batch(8, [b"c"])
    chunk = Chunk(PLACE, 6, whole)
    before, bad, after = chunk.take(ALL), chunk.take(ALL), chunk.take(ALL)
    assert [record.value for record in (*before.records, *after.records)] == [b"a", b"c"]
    assert (bad.first_offset, bad.next_offset) == (7, 8)
    with pytest.raises(Misconfigured, match="the batch at offset 7 cannot be opened: its compressed data"):
        list(bad.own_records())
    assert bad.again is not None
    (found,) = bad.again(7)
    assert isinstance(found, Unreadable)
    assert (found.offset, found.next_offset, found.size_bytes, found.timestamp) == (7, 8, len(data), 1000)


@pytest.mark.parametrize("magic", [0, 1])
def test_an_older_format_is_refused_even_if_it_is_short(magic: int) -> None:
    old = struct.pack(">qiIbb", 0, 20, 0, magic, 0) + bytes(14)
    with pytest.raises(Misconfigured, match=f"old format {magic}"):
        Chunk(PLACE, 0, old)


def test_a_batch_that_does_not_move_the_position_is_refused() -> None:
    with pytest.raises(Misconfigured, match="does not continue the log"):
        Chunk(PLACE, 9, batch(3, [b"a"]))


def test_markers_move_the_position_and_nothing_else() -> None:
    taken = Chunk(PLACE, 0, batch(0, [b"a"], producer=1) + marker(1, 1, commit=True)).take(ALL)
    assert [record.value for record in taken.records] == [b"a"]
    assert taken.next_offset == 2
    alone = Chunk(PLACE, 1, marker(1, 1, commit=True)).take(ALL)
    assert list(alone.records) == []
    assert (alone.first_offset, alone.next_offset) == (1, 2)


def test_aborted_transactions_are_left_out_among_others() -> None:
    data = b"".join(
        (
            batch(0, [b"one committed"], producer=1),
            batch(1, [b"two aborted"], producer=2),
            batch(2, [b"nobody's"]),
            batch(3, [b"two aborted too"], producer=2),
            marker(4, 1, commit=True),
            marker(5, 2, commit=False),
            batch(6, [b"two committed"], producer=2),
            marker(7, 2, commit=True),
            batch(8, [b"one aborted"], producer=1),
            marker(9, 1, commit=False),
            batch(10, [b"last"], producer=1),
        )
    )
    wanted = [b"one committed", b"nobody's", b"two committed", b"last"]
    assert values(data, aborted=[(2, 1), (1, 8)]) == wanted
    assert values(data, aborted=[(1, 8), (2, 1)]) == wanted


def test_an_aborted_transaction_that_began_before_the_fetch_is_left_out() -> None:
    data = batch(5, [b"rest of it"], producer=2) + marker(6, 2, commit=False) + batch(7, [b"new"], producer=2)
    assert values(data, position=5, aborted=[(2, 1)]) == [b"new"]


def test_a_taking_is_bounded_but_always_moves() -> None:
    chunk = Chunk(PLACE, 0, b"".join(batch(number, [bytes(1000)], codec=4) for number in range(10)))
    steps = []
    while not chunk.done:
        taken = chunk.take(2500)
        steps.append((taken.first_offset, taken.next_offset, len(list(taken.records))))
    assert steps == [(0, 3, 3), (3, 6, 3), (6, 9, 3), (9, 10, 1)]
    assert chunk.size < 2500


@pytest.mark.parametrize("paused", [False, True])
def test_a_paused_partition_does_not_keep_the_bytes_of_others(*, paused: bool) -> None:
    one = batch(0, [b"a"])
    answer = one + bytes(100_000)
    intake = FetchBuffer(FetchLimits())
    fetching = BrokerFetch.__new__(BrokerFetch)
    fetching._intake, fetching._feeds = intake, {}
    feed = Feed(PLACE, 0, FetchLimits(), paused=paused)
    fetching._accept(feed, Fetched(PLACE.topic, PLACE.partition, 0, [], memoryview(answer)[: len(one)]))
    held = feed.chunks[0]._data.obj
    assert held == one if paused else held is answer
    feed.paused = False
    (taken,) = intake.take()
    assert [record.value for record in taken.records] == [b"a"]
