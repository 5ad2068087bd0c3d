"""The reader when things are missing, gone or dead: it waits for what passes, and reports what a person must mend."""

import asyncio
import contextlib
import time
import uuid

import pytest
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient, NewTopic

import streamkit.kafka.reader as reader_module
from streamkit.errors import LogGap, Misconfigured
from streamkit.kafka import record_batches
from streamkit.kafka.checksum import crc32c
from streamkit.model.ids import TopicPartition
from streamkit.testing.broker import Broker, start_broker
from tests.kafka.auditor import (
    create_topic,
    fresh_records,
    numbered,
    read,
    read_values,
    reading,
    write,
)

pytestmark = pytest.mark.kafka


async def test_a_position_that_retention_passed_names_the_bounds_and_the_way_out(
    kafka_broker: Broker, place: TopicPartition
) -> None:
    write(kafka_broker.bootstrap, place, numbered(30))
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    deleted = admin.delete_records([ClientPartition(place.topic, 0, 20)])
    for outcome in deleted.values():
        outcome.result(20)
    async with reading(kafka_broker.bootstrap) as reader:
        for position in (5, 31):
            reader.seek(place, position)
            with pytest.raises(LogGap, match="holds offsets 20 to 30") as raised:
                await reader.poll(10.0)
            assert f"position {position} " in raised.value.problem
            assert raised.value.where == str(place)
            assert "streamkit offsets reset <pipeline> --accept-gap" in raised.value.hint
        with pytest.raises(Misconfigured, match="position 31"):
            await reader.poll(10.0)
        reader.seek(place, 20)
        assert await read_values(reader, 10) == numbered(10, start=20)


async def test_a_missing_topic_is_reported_and_does_not_delay_others(
    kafka_broker: Broker, place: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "MISSING_S", 2.0)
    missing = f"missing-{uuid.uuid4().hex[:8]}"
    write(kafka_broker.bootstrap, place, numbered(3))
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(TopicPartition(missing, 0), 0)
        await asyncio.sleep(0.5)
        begun = time.monotonic()
        reader.seek(place, 0)
        assert await read_values(reader, 3) == numbered(3)
        assert time.monotonic() - begun < 0.5
        with pytest.raises(Misconfigured, match=f'topic "{missing}" does not exist'):
            await reader.poll(10.0)
        reader.forget(TopicPartition(missing, 0))
        reader.seek(TopicPartition(place.topic, 7), 0)
        with pytest.raises(Misconfigured, match="has 1 partition, so there is no partition 7"):
            await reader.poll(10.0)


async def test_a_topic_created_while_we_wait_is_read(kafka_broker: Broker) -> None:
    topic = f"late-{uuid.uuid4().hex[:8]}"
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(TopicPartition(topic, 0), 0)
        assert await reader.poll(0.5) == []
        admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(20)
        write(kafka_broker.bootstrap, TopicPartition(topic, 0), numbered(2))
        assert await read_values(reader, 2) == numbered(2)


async def test_a_restarted_broker_is_read_again() -> None:
    with start_broker() as broker:
        place = TopicPartition(create_topic(broker.bootstrap), 0)
        write(broker.bootstrap, place, numbered(10))
        async with reading(broker.bootstrap) as reader:
            reader.seek(place, 0)
            assert await read_values(reader, 10) == numbered(10)
            broker.kill(0)
            assert await reader.poll(1.0) == []
            await asyncio.to_thread(broker.restart, 0)
            await asyncio.to_thread(write, broker.bootstrap, place, numbered(10, start=10))
            assert await read_values(reader, 10) == numbered(10, start=10)


async def test_a_dead_leader_is_replaced_by_the_next() -> None:
    with start_broker(nodes=3) as cluster:
        topic = create_topic(cluster.bootstrap, 3, replication=3)
        places = [TopicPartition(topic, number) for number in range(3)]
        async with reading(cluster.bootstrap) as reader:
            for place in places:
                reader.seek(place, 0)
                await asyncio.to_thread(write, cluster.bootstrap, place, numbered(10))
            await read(reader, 30)
            leader = reader._connection._client.cluster.broker_metadata(reader._feeds[places[0]].node)
            addresses = cluster.bootstrap.split(",")
            await asyncio.to_thread(cluster.kill, addresses.index(f"{leader.host}:{leader.port}"))
            for place in places:
                await asyncio.to_thread(write, cluster.bootstrap, place, numbered(10, start=10))
            found = await read(reader, 30, timeout_s=60)
            assert sorted(record.value for record in found) == sorted(numbered(10, start=10) * 3)


async def test_a_damaged_partition_does_not_hold_up_the_others(kafka_broker: Broker) -> None:
    topic = create_topic(kafka_broker.bootstrap, 2)
    broken, sound = TopicPartition(topic, 0), TopicPartition(topic, 1)
    write(kafka_broker.bootstrap, broken, numbered(5))
    async with reading(kafka_broker.bootstrap) as reader:
        reader.seek(broken, 77)
        reader.seek(sound, 0)
        with pytest.raises(Misconfigured, match="position 77"):
            await reader.poll(10.0)
        for turn in range(3):
            write(kafka_broker.bootstrap, sound, [b"%d" % turn])
            found: list[bytes | None] = []
            async with asyncio.timeout(10):
                while not found:
                    with contextlib.suppress(Misconfigured):
                        found = [record.value for record in fresh_records(await reader.poll(1.0))]
            assert found == [b"%d" % turn]


async def test_a_batch_with_a_wrong_checksum_is_fetched_again_and_then_told(
    kafka_broker: Broker, place: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(kafka_broker.bootstrap, place, numbered(5))
    looks = 0

    def wrong_for(times: int) -> None:
        nonlocal looks
        looks = 0

        def checksum(data: memoryview) -> int:
            nonlocal looks
            looks += 1
            return 0 if looks <= times else crc32c(data)

        monkeypatch.setattr(record_batches, "crc32c", checksum)

    async with reading(kafka_broker.bootstrap) as reader:
        wrong_for(reader_module.CORRUPT_TRIES_MAX)
        reader.seek(place, 0)
        assert await read_values(reader, 5) == numbered(5)
        wrong_for(1000)
        reader.seek(place, 0)
        with pytest.raises(record_batches.CorruptBatch, match="checksum does not match") as raised:
            await reader.poll(20.0)
        assert looks == reader_module.CORRUPT_TRIES_MAX + 1
        assert "--accept-gap" in raised.value.hint
