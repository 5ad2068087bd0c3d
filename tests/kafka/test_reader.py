"""The reader on a real broker: what another client wrote comes back, and nothing else."""

import asyncio
import contextlib
import time

import pytest

import streamkit.kafka.reader as reader_module
from streamkit.kafka.fetch_calls import FetchLimits
from streamkit.model.ids import TopicPartition
from streamkit.testing.broker import Broker
from tests.kafka.auditor import (
    connected,
    create_topic,
    fresh_records,
    numbered,
    open_producer,
    producer,
    read,
    read_values,
    reading,
    write,
)

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_every_codec_is_read(kafka_broker: Broker, place: TopicPartition, codec: str) -> None:
    wanted = numbered(3000)
    write(kafka_broker.bootstrap, place, wanted, **{"compression.type": codec})
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(place, 0)
        assert await read_values(reader, 3000) == wanted


async def test_keys_values_headers_and_timestamps_come_back_and_so_do_nulls(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    client = producer(kafka_broker.bootstrap)
    client.produce(
        place.topic, b"v", b"k", 0, timestamp=1234, headers=[("a", b"1"), ("b", None), ("a", b"2")]
    )
    client.produce(place.topic, None, b"tombstone", 0, timestamp=1235)
    client.produce(place.topic, b"", None, 0, timestamp=1236)
    client.flush(20)
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(place, 0)
        first, second, third = await read(reader, 3)
    assert (first.offset, first.timestamp, first.key, first.value) == (0, 1234, b"k", b"v")
    assert list(first.headers) == [("a", b"1"), ("b", None), ("a", b"2")]
    assert (second.offset, second.key, second.value, list(second.headers)) == (1, b"tombstone", None, [])
    assert (third.offset, third.key, third.value) == (2, None, b"")


async def test_log_append_time_gives_the_writers_timestamps(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, message_timestamp_type="LogAppendTime")
    for codec in ("none", "zstd"):
        client = producer(kafka_broker.bootstrap, **{"compression.type": codec})
        for number in range(50):
            client.produce(topic, b"v", partition=0, timestamp=1_600_000_000_000 + 7 * number)
        client.flush(20)
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(TopicPartition(topic, 0), 0)
        stamps = [record.timestamp for record in await read(reader, 100)]
    assert stamps == [1_600_000_000_000 + 7 * number for number in range(50)] * 2


async def test_only_committed_transactions_are_read_among_aborted_ones(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    writers = [open_producer(kafka_broker.bootstrap) for _ in range(3)]
    wanted = []
    for turn in range(12):
        for number, writer in enumerate(writers):
            writer.begin_transaction()
            writer.produce(place.topic, b"%d of %d" % (turn, number), partition=0)
            writer.flush(20)
        for number, writer in enumerate(writers):
            writer.produce(place.topic, b"%d of %d again" % (turn, number), partition=0)
            writer.flush(20)
        for number, writer in enumerate(writers):
            if (turn + number) % 3 == 0:
                writer.abort_transaction(20)
            else:
                writer.commit_transaction(20)
                wanted += [b"%d of %d" % (turn, number), b"%d of %d again" % (turn, number)]
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(place, 0)
        assert sorted(await read_values(reader, 48)) == sorted(wanted)
    async with reading(kafka_broker.bootstrap, committed=False) as reader:
        reader.seek(place, 0)
        assert len(await read_values(reader, 72)) == 72


async def test_every_position_inside_transactions_gives_the_right_rest(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    writer = open_producer(kafka_broker.bootstrap)
    for turn in range(4):
        writer.begin_transaction()
        for number in range(3):
            writer.produce(place.topic, b"%d/%d" % (turn, number), partition=0)
        writer.flush(20)  # an abort throws away what was not sent
        (writer.abort_transaction if turn % 2 else writer.commit_transaction)(20)
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(place, 0)
        everything = await read(reader, 6)
        end = 16
        for start in range(end):
            reader.seek(place, start)
            position, found = start, []
            async with asyncio.timeout(10):
                while position < end:
                    batches = await reader.poll(1.0)
                    found += fresh_records(batches)
                    position = batches[-1].next_offset if batches else position
            assert position == end
            assert [record.offset for record in found] == [
                record.offset for record in everything if record.offset >= start
            ]


async def test_an_open_transaction_holds_back_what_follows_until_it_ends(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    writer = open_producer(kafka_broker.bootstrap)
    writer.begin_transaction()
    writer.produce(place.topic, b"open", partition=0)
    writer.flush(20)
    write(kafka_broker.bootstrap, place, [b"behind it"])
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(place, 0)
        assert await reader.poll(0.8) == []
        writer.commit_transaction(20)
        assert await read_values(reader, 2) == [b"open", b"behind it"]


async def test_the_position_moves_over_aborted_records_and_markers(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    writer = open_producer(kafka_broker.bootstrap)
    writer.begin_transaction()
    writer.produce(place.topic, b"never", partition=0)
    writer.flush(20)
    writer.abort_transaction(20)
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(place, 0)
        position = 0
        async with asyncio.timeout(10):
            while position < 2:
                for batch in await reader.poll(1.0):
                    assert batch.first_offset == position
                    assert list(batch.records) == []
                    position = batch.next_offset
        assert position == 2


async def test_a_paused_partition_keeps_what_it_has_and_the_others_go_on(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 2)
    still, moving = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(still, 0)
        reader.seek(moving, 0)
        reader.pause(still)
        write(kafka_broker.bootstrap, still, numbered(5))
        write(kafka_broker.bootstrap, moving, numbered(3))
        assert await read_values(reader, 3) == numbered(3)
        assert await reader.poll(0.3) == []
        begun = time.monotonic()
        reader.resume(still)
        assert await read_values(reader, 5) == numbered(5)
        assert time.monotonic() - begun < 0.2


async def test_a_paused_partition_fetches_no_more_than_its_buffer(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    wanted = [bytes([number % 256]) * 1000 for number in range(3000)]
    write(kafka_broker.bootstrap, place, wanted, **{"batch.size": 20_000})
    limits = FetchLimits(partition_bytes=100_000, buffer_bytes=300_000)
    async with reading(kafka_broker.bootstrap, limits=limits) as reader:
        reader.seek(place, 0)
        reader.pause(place)
        assert await reader.poll(1.0) == []
        held = reader._intake.buffered_bytes
        assert 300_000 <= held < 500_000
        assert await reader.poll(0.5) == []
        assert reader._intake.buffered_bytes == held
        reader.resume(place)
        assert await read_values(reader, 3000) == wanted
        assert reader._intake.buffered_bytes == 0


async def test_a_seek_drops_what_was_buffered_and_what_was_under_way(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    write(kafka_broker.bootstrap, place, numbered(500))
    async with reading(kafka_broker.bootstrap) as reader:
        for turn in range(40):
            reader.seek(place, turn * 7)
            await asyncio.sleep((turn % 5) * 0.001)
            reader.seek(place, turn * 11)
            assert (await read(reader, 500 - turn * 11))[0].offset == turn * 11


async def test_a_seek_does_not_wait_for_the_long_poll_of_an_idle_broker(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 2)
    idle, wanted = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(kafka_broker.bootstrap, wanted, numbered(10))
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(idle, 0)
        await reader.poll(0.7)
        took = []
        for _ in range(5):
            await asyncio.sleep(0.13)
            begun = time.monotonic()
            reader.seek(wanted, 0)
            await read_values(reader, 10)
            took.append(time.monotonic() - begun)
        # The second connection is made for the first of them, and one may meet two polls in flight.
        assert sorted(took)[2] < 0.1


async def test_after_a_seek_all_partitions_return_to_one_fetch(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 2)
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(TopicPartition(topic, 0), 0)
        await reader.poll(0.2)
        reader.seek(TopicPartition(topic, 1), 0)
        await reader.poll(1.5)
        (fetching,) = reader._fetches.values()
        in_flight = {feed.in_flight for feed in reader._feeds.values()}
        assert len(in_flight) == 1
        assert sum(slot.until is not None for slot in fetching._slots) == 1


async def test_a_forgotten_partition_is_silent(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 2)
    left, kept = TopicPartition(topic, 0), TopicPartition(topic, 1)
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(left, 0)
        reader.seek(kept, 0)
        write(kafka_broker.bootstrap, left, numbered(3))
        await asyncio.sleep(0.3)
        reader.forget(left)
        write(kafka_broker.bootstrap, left, numbered(3))
        write(kafka_broker.bootstrap, kept, [b"kept"])
        assert await read_values(reader, 1) == [b"kept"]
        assert await reader.poll(0.3) == []


async def test_what_comes_for_forgotten_partitions_does_not_hold_up_the_next(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 3)
    *left, wanted = (TopicPartition(topic, number) for number in range(3))
    for place in (*left, wanted):
        write(kafka_broker.bootstrap, place, numbered(3))
    async with reading(kafka_broker.bootstrap, limits=FetchLimits(wait_s=9.0)) as reader:
        for place in left:  # a long poll for each: now both connections are taken
            reader.seek(place, 0)
            await read(reader, 3)
            assert await reader.poll(0.3) == []
        for place in left:
            reader.forget(place)
        reader.seek(wanted, 0)
        polling = asyncio.create_task(reader.poll(15.0))
        for place in left:
            await asyncio.to_thread(write, kafka_broker.bootstrap, place, [b"too late"])
        assert [record.value for record in fresh_records(await polling)] == numbered(3)


async def test_what_comes_for_a_paused_partition_does_not_hold_up_the_others(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 2)
    still, moving = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(kafka_broker.bootstrap, moving, numbered(3))
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(still, 0)
        reader.seek(moving, 0)
        await read(reader, 3)
        reader.pause(still)
        assert await reader.poll(1.2) == []  # from now on both are in one fetch
        polling = asyncio.create_task(reader.poll(15.0))
        for place in (still, moving):
            await asyncio.to_thread(write, kafka_broker.bootstrap, place, numbered(3))
        assert [record.value for record in fresh_records(await polling)] == numbered(3)


async def test_a_cancelled_poll_loses_nothing(kafka_broker: Broker, place: TopicPartition) -> None:
    wanted = numbered(2000)
    found: list[bytes | None] = []
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(place, 0)
        writing = asyncio.create_task(
            asyncio.to_thread(
                write, kafka_broker.bootstrap, place, wanted, **{"linger.ms": 0, "batch.size": 500}
            )
        )
        async with asyncio.timeout(20):
            while len(found) < len(wanted):
                polling = asyncio.create_task(reader.poll(5.0))
                await asyncio.sleep(0.003)
                polling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    found += [record.value for record in fresh_records(await polling)]
        await writing
    assert found == wanted


async def test_two_readers_of_one_connection_do_not_wait_for_each_other(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    write(kafka_broker.bootstrap, place, numbered(10))
    async with connected(kafka_broker.bootstrap) as connection:
        idle = reader_module.KafkaReader(connection, committed=True)
        busy = reader_module.KafkaReader(connection, committed=True)
        idle.seek(place, 10)
        busy.seek(place, 0)
        await idle.poll(0.2)
        await read(busy, 10)
        begun = time.monotonic()
        for _ in range(20):
            busy.seek(place, 0)
            await read(busy, 10)
        assert time.monotonic() - begun < 2.0
        await idle.close()
        await busy.close()


async def test_a_batch_larger_than_the_fetch_is_still_read(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    wanted = [bytes([number]) * 300_000 for number in range(8)]
    write(kafka_broker.bootstrap, place, wanted)
    limits = FetchLimits(partition_bytes=1000, answer_bytes=2000)
    async with reading(kafka_broker.bootstrap, limits=limits) as reader:
        reader.seek(place, 0)
        assert await read_values(reader, 8) == wanted


async def test_small_answers_are_shared_fairly_among_partitions(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 6)
    places = [TopicPartition(topic, number) for number in range(6)]
    for place in places:
        write(kafka_broker.bootstrap, place, [bytes(1000)] * 50, **{"batch.size": 5000})
    limits = FetchLimits(partition_bytes=6000, answer_bytes=6000)
    async with reading(kafka_broker.bootstrap, limits=limits) as reader:
        for place in places:
            reader.seek(place, 0)
        first_full: dict[TopicPartition, int] = {}
        seen = dict.fromkeys(places, 0)
        for _ in range(400):
            for batch in await reader.poll(1.0):
                seen[batch.partition] += len(list(batch.records))
                if seen[batch.partition] == 50:
                    first_full.setdefault(batch.partition, min(seen.values()))
            if len(first_full) == 6:
                break
    assert min(first_full.values()) > 25
