"""Questions about transactions, packed by hand: which there are, how each stands, and what is open on a partition."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from streamkit.kafka.transaction_port import Producer
from streamkit.kafka.wire import Call, Fields, compact_array, compact_string
from streamkit.model.ids import TopicPartition

_INT32 = struct.Struct(">i")
_NO_TAGS = b"\0"
_ALL = b"\x01"  # an array without elements: no filter

DESCRIBE_PRODUCERS_KEY = 61
DESCRIBE_TRANSACTIONS_KEY = 65
LIST_TRANSACTIONS_KEY = 66


class Described(NamedTuple):
    """What a coordinator says of one transactional id."""

    code: int
    state: str
    producer: Producer


class Listed(NamedTuple):
    """The transactional ids of which one broker is the coordinator."""

    code: int
    writer_ids: list[str]


class OnPartition(NamedTuple):
    """The producers that have something open on one partition."""

    partition: TopicPartition
    code: int
    open_producers: frozenset[int]


def describe_transaction(writer_id: str) -> Call[Described]:
    """Ask a coordinator how the last transaction of an id stands."""
    body = compact_array([compact_string(writer_id)]) + _NO_TAGS
    return Call(DESCRIBE_TRANSACTIONS_KEY, 0, body, _read_described)


def _read_described(fields: Fields) -> Described:
    fields.int32()
    fields.compact_count()
    code = fields.int16()
    fields.compact_string()
    state = fields.compact_string() or ""
    fields.int32()
    fields.int64()
    return Described(code, state, Producer(fields.int64(), fields.int16()))


def list_transactions() -> Call[Listed]:
    """Ask a broker for all transactional ids that it coordinates and that we may see."""
    return Call(LIST_TRANSACTIONS_KEY, 0, _ALL + _ALL + _NO_TAGS, _read_listed)


def _read_listed(fields: Fields) -> Listed:
    fields.int32()
    code = fields.int16()
    for _ in range(fields.compact_count()):
        fields.compact_string()
    writer_ids = []
    for _ in range(fields.compact_count()):
        writer_ids.append(fields.compact_string() or "")
        fields.int64()
        fields.compact_string()
        fields.tags()
    return Listed(code, writer_ids)


def describe_producers(partitions: Iterable[TopicPartition]) -> Call[list[OnPartition]]:
    """Ask the leader of these partitions who writes to them."""
    topics: dict[str, list[bytes]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(_INT32.pack(number))
    packed = [compact_string(topic) + compact_array(numbers) + _NO_TAGS for topic, numbers in topics.items()]
    return Call(DESCRIBE_PRODUCERS_KEY, 0, compact_array(packed) + _NO_TAGS, _read_producers)


def _read_producers(fields: Fields) -> list[OnPartition]:
    fields.int32()
    found = []
    for _ in range(fields.compact_count()):
        topic = fields.compact_string() or ""
        for _ in range(fields.compact_count()):
            partition, code = TopicPartition(topic, fields.int32()), fields.int16()
            fields.compact_string()
            found.append(OnPartition(partition, code, frozenset(_read_open(fields))))
            fields.tags()
        fields.tags()
    return found


def _read_open(fields: Fields) -> list[int]:
    producers = []
    for _ in range(fields.compact_count()):
        producer_id = fields.int64()
        fields.int32()
        fields.int32()
        fields.int64()
        fields.int32()
        if fields.int64() >= 0:  # where its open transaction begins
            producers.append(producer_id)
        fields.tags()
    return producers
