"""The Produce request, packed by hand: one batch per partition, all partitions of one leader together."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from streamkit.kafka.transaction_calls import PRODUCE_KEY
from streamkit.kafka.wire import Call, Fields, compact_string
from streamkit.model.ids import TopicPartition
from streamkit.model.varint import uvarint

_HEAD = struct.Struct(">hi")
_INT32 = struct.Struct(">i")
_PARTITION = struct.Struct(">ihqqq")
# The same and what follows if all is well: no reasons, no message, no tags.
_PLAIN_PARTITION = struct.Struct(">ihqqq3s")
_PLAIN = b"\x01\x00\x00"
_NO_TAGS = b"\0"
_ALL_REPLICAS = -1


class Ack(NamedTuple):
    """What the broker says of one partition's batch."""

    partition: TopicPartition
    code: int
    base_offset: int
    message: str


def produce(
    version: int, writer_id: str | None, timeout_ms: int, batches: Iterable[tuple[TopicPartition, bytes]]
) -> Call[list[Ack]]:
    """Append these batches, of different partitions, and answer when all replicas in sync have them."""
    topics: dict[str, list[bytes]] = {}
    for (topic, number), content in batches:
        parts = topics.setdefault(topic, [])
        parts += (_INT32.pack(number), uvarint(len(content) + 1), content, _NO_TAGS)
    body = [compact_string(writer_id), _HEAD.pack(_ALL_REPLICAS, timeout_ms), uvarint(len(topics) + 1)]
    for topic, parts in topics.items():
        body += (compact_string(topic), uvarint(len(parts) // 4 + 1), *parts, _NO_TAGS)
    body.append(_NO_TAGS)
    return Call(PRODUCE_KEY, version, body, _read_acks)


def _read_acks(fields: Fields) -> list[Ack]:
    acks = []
    for _ in range(fields.compact_count()):
        topic = fields.compact_string() or ""
        for _ in range(fields.compact_count()):
            number, code, base_offset, _time, _start, rest = _PLAIN_PARTITION.unpack_from(
                fields.buffer, fields.at
            )
            if rest == _PLAIN:
                fields.at += _PLAIN_PARTITION.size
                acks.append(Ack(TopicPartition(topic, number), code, base_offset, ""))
                continue
            fields.at += _PARTITION.size
            reasons = _read_reasons(fields)
            message = fields.compact_string()
            fields.tags()
            reasons += [message] if message else []
            acks.append(Ack(TopicPartition(topic, number), code, base_offset, "; ".join(reasons)))
        fields.tags()
    return acks


def _read_reasons(fields: Fields) -> list[str]:
    reasons = []
    for _ in range(fields.compact_count()):
        index, reason = fields.int32(), fields.compact_string()
        fields.tags()
        reasons.append(f"record {index} of the batch: {reason}")
    return reasons
