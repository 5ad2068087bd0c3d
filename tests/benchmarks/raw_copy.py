"""The yardstick: copy a topic as cheaply as Python on aiokafka can while it still looks at every record.

Batches are fetched, records iterated, batches rebuilt record by record, partitioned by key and produced (acks=all,
idempotent); positions are committed every 100 ms after the output has been acknowledged. Nothing of streamkit in it.
Usage: python -m tests.benchmarks.raw_copy BOOTSTRAP GROUP IN OUT RECORDS
"""

import asyncio
import sys
import time
from typing import Any

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.partitioner import murmur2

from tests.benchmarks.clock import mark
from tests.benchmarks.raw_batches import fetch_batches

COMMIT_S = 0.1
BATCH_BYTES = 1_000_000
FETCH_BYTES = 1024 * 1024  # of a partition, as in streamkit; 8 MB was tried, and took a tenth more


class Partitions(dict[bytes, int]):
    """key -> partition, remembered: aiokafka's murmur2 is plain Python."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._count = count

    def __missing__(self, key: bytes) -> int:
        found = self[key] = (murmur2(key) & 0x7FFFFFFF) % self._count
        return found


class Copy:
    """The open output batches, and what was sent but not acknowledged."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partitions: int) -> None:
        self._producer = producer
        self._topic = topic
        self._partition_of = Partitions(partitions)
        self._open = [producer.create_batch() for _ in range(partitions)]
        self._sent: list[asyncio.Future[Any]] = []
        self.records = 0

    async def add(self, batch: Any) -> None:
        partition_of, builders = self._partition_of, self._open
        count = 0
        for record in batch:
            key = record.key
            partition = partition_of[key]
            appended = builders[partition].append(key=key, value=record.value, timestamp=record.timestamp)
            if appended is None:
                await self._send(partition)
                builders[partition].append(key=key, value=record.value, timestamp=record.timestamp)
            count += 1
        self.records += count

    async def flush(self) -> None:
        for partition, builder in enumerate(self._open):
            if builder.record_count():
                await self._send(partition)
        sent, self._sent = self._sent, []
        await asyncio.gather(*sent)

    async def _send(self, partition: int) -> None:
        full = self._open[partition]
        self._sent.append(await self._producer.send_batch(full, self._topic, partition=partition))
        self._open[partition] = self._producer.create_batch()


async def main(bootstrap: str, group: str, source: str, target: str, records: int) -> None:
    producer = AIOKafkaProducer(
        bootstrap_servers=bootstrap,
        max_batch_size=BATCH_BYTES,
        max_request_size=4 * BATCH_BYTES,
        linger_ms=2,
        acks="all",
        enable_idempotence=True,
    )
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        max_partition_fetch_bytes=FETCH_BYTES,
        fetch_max_wait_ms=10,
    )
    await producer.start()
    partitions = len(await producer.partitions_for(target))
    await consumer.start()
    copy = Copy(producer, target, partitions)
    positions: dict[TopicPartition, int] = {}
    committed_s = time.monotonic()
    while copy.records < records:
        fetched = await fetch_batches(consumer, 0.5)
        if fetched and copy.records == 0:
            mark("first")
        for partition, (batches, next_offset) in fetched.items():
            for batch in batches:
                await copy.add(batch)
            positions[partition] = next_offset
        if positions and time.monotonic() - committed_s >= COMMIT_S:
            await copy.flush()
            await consumer.commit(positions)
            positions = {}
            committed_s = time.monotonic()
    await copy.flush()
    if positions:
        await consumer.commit(positions)
    mark("last", records=copy.records)
    await consumer.stop()
    await producer.stop()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:5], int(sys.argv[5])))
