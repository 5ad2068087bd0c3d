"""What a test reads of a topic: committed records, and what it is told of dead letters that it did not read."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from streamkit.model.ids import TopicPartition
from streamkit.testing.memory import MemoryLog

Decode = Callable[[bytes], Any]


class Received(msgspec.Struct, frozen=True):
    """One committed record of a topic, decoded."""

    key: Any
    value: Any
    timestamp: int
    partition: int
    offset: int
    headers: Mapping[str, bytes | None]


async def committed(
    log: MemoryLog,
    read_from: dict[TopicPartition, int],
    topic: str,
    decode: Decode = bytes,
    decode_key: Decode = bytes,
) -> list[Received]:
    """The committed records of a topic from these offsets on, by partition and offset; the offsets then lie behind them."""
    count = (await log.admin().partitions([topic])).get(topic, 0)
    partitions = [TopicPartition(topic, index) for index in range(count)]
    ends = await log.admin().end_offsets(partitions, committed=True)
    reader = log.reader(committed=True)
    found: list[Received] = []
    at = {partition: read_from.get(partition, 0) for partition in partitions}
    for partition, offset in at.items():
        reader.seek(partition, offset)
    while any(at[partition] < ends[partition] for partition in partitions):
        for batch in await reader.poll(1.0):
            at[batch.partition] = batch.next_offset
            found += [
                Received(
                    key=None if record.key is None else decode_key(record.key),
                    value=None if record.value is None else decode(record.value),
                    timestamp=record.timestamp,
                    partition=batch.partition.partition,
                    offset=record.offset,
                    headers=dict(record.headers),
                )
                for record in batch.records
                if record.offset >= batch.first_offset
            ]
    await reader.close()
    read_from |= at
    return sorted(found, key=lambda record: (record.partition, record.offset))


def said_of_unread(letters: list[Received]) -> str:
    """What a test is told about the dead letters that it did not ask for."""
    first = {name: (content or b"").decode(errors="replace") for name, content in letters[0].headers.items()}
    return (
        f"{len(letters)} dead letter{'s' if len(letters) > 1 else ''} that nobody has read; "
        f'the first failed in step "{first.get("streamkit.step", "")}": {first.get("streamkit.error", "")}\n'
        "  hint    a test that expects them reads them: harness.dead_letters()"
    )
