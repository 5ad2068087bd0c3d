"""Whole record batches out of aiokafka's consumer, without an object per record. Nothing of streamkit in it."""

import asyncio
import time
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import FetchResult


async def fetch_batches(
    consumer: AIOKafkaConsumer, timeout_s: float
) -> dict[TopicPartition, tuple[list[Any], int]]:
    """The batches that have arrived, and the offset behind them; empty after the timeout."""
    consumer._coordinator.check_errors()
    fetcher, subscription = consumer._fetcher, consumer._subscription
    subscription._fetch_count += 1
    try:
        deadline = time.monotonic() + timeout_s
        while True:
            taken = _take(fetcher)
            left_s = deadline - time.monotonic()
            if taken or left_s <= 0:
                return taken
            waiter = fetcher._create_fetch_waiter()
            done, _ = await asyncio.wait([waiter], timeout=left_s)
            if not done:
                waiter.cancel()
                return {}
            waiter.result()
    finally:
        subscription._fetch_count -= 1
        subscription._last_fetch_ended = time.monotonic()


def _take(fetcher: Any) -> dict[TopicPartition, tuple[list[Any], int]]:
    taken: dict[TopicPartition, tuple[list[Any], int]] = {}
    for partition in list(fetcher._records):
        result = fetcher._records.pop(partition)
        fetcher._notify(fetcher._wait_consume_future)
        if type(result) is not FetchResult:
            result.check_raise()
        if not result.check_assignment(partition) or not result.has_more():
            continue
        unpacked = result._partition_records
        batches = []
        while unpacked._records.has_next():
            batch = unpacked._records.next_batch()
            if not batch.validate_crc():
                raise RuntimeError(f"a batch of {partition} is damaged")
            if not batch.is_control_batch:
                batches.append(batch)
            unpacked.next_fetch_offset = batch.next_offset
        result._update_position()
        taken[partition] = (batches, unpacked.next_fetch_offset)
    return taken
