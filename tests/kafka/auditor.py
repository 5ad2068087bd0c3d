"""What the reader's and the group's tests need of a client that is not ours: topics, and records of every kind."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from streamkit.config import Security
from streamkit.kafka.connection import Connection
from streamkit.kafka.reader import KafkaReader
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch, LogRecord


def create_topic(bootstrap: str, partitions: int = 1, *, replication: int = 1, **config: str) -> str:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    settings = {key.replace("_", "."): value for key, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, replication, config=settings)])[name].result(20)
    return name


def producer(bootstrap: str, **settings: Any) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 20} | settings)


def write(bootstrap: str, place: TopicPartition, values: Sequence[bytes], **settings: Any) -> None:
    client = producer(bootstrap, **settings)
    for value in values:
        client.produce(place.topic, value, partition=place.partition)
    assert client.flush(20) == 0


def open_producer(bootstrap: str) -> Producer:
    client = producer(bootstrap, **{"transactional.id": uuid.uuid4().hex})
    client.init_transactions(20)
    return client


@asynccontextmanager
async def connected(bootstrap: str, **options: Any) -> AsyncIterator[Connection]:
    connection = Connection(bootstrap, Security(), **options)
    await connection.connect()
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def reading(bootstrap: str, *, committed: bool = True, **options: Any) -> AsyncIterator[KafkaReader]:
    async with connected(bootstrap) as connection:
        reader = KafkaReader(connection, committed=committed, **options)
        try:
            yield reader
        finally:
            await reader.close()


def fresh_records(batches: Sequence[FetchedBatch]) -> list[LogRecord]:
    return [record for batch in batches for record in batch.records if record.offset >= batch.first_offset]


async def read(reader: KafkaReader, count: int, timeout_s: float = 20.0) -> list[LogRecord]:
    """The next `count` records; fails if they do not come, or if there are more."""
    found: list[LogRecord] = []
    async with asyncio.timeout(timeout_s):
        while len(found) < count:
            found += fresh_records(await reader.poll(1.0))
    assert len(found) == count
    return found


async def read_values(reader: KafkaReader, count: int) -> list[bytes | None]:
    return [record.value for record in await read(reader, count)]


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"value %d" % number for number in range(start, start + count)]
