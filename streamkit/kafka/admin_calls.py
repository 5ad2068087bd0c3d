"""The requests of the admin, packed by hand: topics, their configuration, offsets, groups."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from streamkit.kafka.shown_member import ShownMember
from streamkit.kafka.wire import Call, Fields, compact_array, compact_string
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.topic_shape import TopicSpec

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_LIST_OFFSETS_PARTITION = struct.Struct(">iiq")
_NO_TAGS = b"\0"
_NULL = b"\0"
_NONE = b"\x01"  # an array without elements
_TOPIC_RESOURCE = 2
_SET = 0
_FROM_THE_TOPIC = 1  # where a value comes from: set on the topic itself
_BROKER_DEFAULT = -1
_CLIENT = -1

LATEST = -1
EARLIEST = -2


class PartitionState(NamedTuple):
    """One partition in the metadata."""

    number: int
    code: int
    leader: int
    replicas: int


class TopicState(NamedTuple):
    """One topic in the metadata; `code` says when there is no such topic."""

    name: str
    code: int
    internal: bool
    partitions: list[PartitionState]


class Metadata(NamedTuple):
    """What one broker knows of the cluster."""

    nodes: list[int]
    controller: int
    topics: list[TopicState]


class TopicOutcome(NamedTuple):
    """What became of one topic."""

    topic: str
    code: int
    message: str


class Found(NamedTuple):
    """An offset of one partition, or why there is none."""

    partition: TopicPartition
    code: int
    offset: int


class Noted(NamedTuple):
    """A position of one partition, or why there is none."""

    partition: TopicPartition
    code: int
    position: Position


class Config(NamedTuple):
    """How a topic is configured: what was set on it, and all that counts for it, wherever it comes from."""

    own: dict[str, str]
    effective: dict[str, str]


class DescribedGroup(NamedTuple):
    """A group as its coordinator sees it."""

    code: int
    members: list[ShownMember]


def metadata(topics: Sequence[str] | None) -> Call[Metadata]:
    """Ask what a broker knows of these topics, or of all; never creates one."""
    names = _NULL if topics is None else compact_array([compact_string(name) + _NO_TAGS for name in topics])
    return Call(3, 9, names + b"\0\0\0" + _NO_TAGS, _read_metadata)


def _read_metadata(fields: Fields) -> Metadata:
    fields.int32()
    nodes = []
    for _ in range(fields.compact_count()):
        nodes.append(fields.int32())
        fields.compact_string()
        fields.int32()
        fields.compact_string()
        fields.tags()
    fields.compact_string()
    controller = fields.int32()
    return Metadata(nodes, controller, [_read_topic(fields) for _ in range(fields.compact_count())])


def _read_topic(fields: Fields) -> TopicState:
    code, name, internal = fields.int16(), fields.compact_string() or "", bool(fields.int8())
    partitions = []
    for _ in range(fields.compact_count()):
        partition_code, number, leader = fields.int16(), fields.int32(), fields.int32()
        fields.int32()
        replicas, _in_sync, _offline = (_skip_numbers(fields) for _ in range(3))
        fields.tags()
        partitions.append(PartitionState(number, partition_code, leader, replicas))
    fields.int32()
    fields.tags()
    return TopicState(name, code, internal, partitions)


def _skip_numbers(fields: Fields) -> int:
    count = fields.compact_count()
    fields.take(4 * count)
    return count


def create_topics(specs: Sequence[TopicSpec], timeout_ms: int) -> Call[list[TopicOutcome]]:
    """Create topics."""
    topics = [
        compact_string(spec.name)
        + _INT32.pack(spec.partitions)
        + _INT16.pack(_BROKER_DEFAULT if spec.replication is None else spec.replication)
        + _NONE
        + compact_array(
            [compact_string(key) + compact_string(value) + _NO_TAGS for key, value in spec.config.items()]
        )
        + _NO_TAGS
        for spec in specs
    ]
    body = compact_array(topics) + _INT32.pack(timeout_ms) + b"\0" + _NO_TAGS
    return Call(19, 5, body, _read_created)


def _read_created(fields: Fields) -> list[TopicOutcome]:
    fields.int32()
    outcomes = []
    for _ in range(fields.compact_count()):
        name, code, message = fields.compact_string(), fields.int16(), fields.compact_string()
        fields.int32()
        fields.int16()
        for _ in range(fields.compact_count()):
            fields.compact_string()
            fields.compact_string()
            fields.take(3)
            fields.tags()
        fields.tags()
        outcomes.append(TopicOutcome(name or "", code, message or ""))
    return outcomes


def delete_topics(names: Sequence[str], timeout_ms: int) -> Call[list[TopicOutcome]]:
    """Delete topics."""
    body = compact_array([compact_string(name) for name in names]) + _INT32.pack(timeout_ms) + _NO_TAGS
    return Call(20, 4, body, _read_deleted)


def _read_deleted(fields: Fields) -> list[TopicOutcome]:
    fields.int32()
    outcomes = []
    for _ in range(fields.compact_count()):
        outcomes.append(TopicOutcome(fields.compact_string() or "", fields.int16(), ""))
        fields.tags()
    return outcomes


def create_partitions(topic: str, partitions: int, timeout_ms: int) -> Call[list[TopicOutcome]]:
    """Raise the number of partitions."""
    topics = [compact_string(topic) + _INT32.pack(partitions) + _NULL + _NO_TAGS]
    body = compact_array(topics) + _INT32.pack(timeout_ms) + b"\0" + _NO_TAGS
    return Call(37, 2, body, _read_outcomes)


def _read_outcomes(fields: Fields) -> list[TopicOutcome]:
    fields.int32()
    outcomes = []
    for _ in range(fields.compact_count()):
        name, code, message = fields.compact_string(), fields.int16(), fields.compact_string()
        fields.tags()
        outcomes.append(TopicOutcome(name or "", code, message or ""))
    return outcomes


def alter_config(topic: str, config: Mapping[str, str]) -> Call[list[TopicOutcome]]:
    """Set entries of a topic's configuration, leaving the others."""
    entries = [
        compact_string(key) + _INT8.pack(_SET) + compact_string(value) + _NO_TAGS
        for key, value in config.items()
    ]
    resource = _INT8.pack(_TOPIC_RESOURCE) + compact_string(topic) + compact_array(entries) + _NO_TAGS
    return Call(44, 1, compact_array([resource]) + b"\0" + _NO_TAGS, _read_altered)


def _read_altered(fields: Fields) -> list[TopicOutcome]:
    fields.int32()
    outcomes = []
    for _ in range(fields.compact_count()):
        code, message = fields.int16(), fields.compact_string()
        fields.int8()
        outcomes.append(TopicOutcome(fields.compact_string() or "", code, message or ""))
        fields.tags()
    return outcomes


def describe_configs(topics: Sequence[str]) -> Call[dict[str, Config]]:
    """How these topics are configured; one that is missing has no entry."""
    resources = [_INT8.pack(_TOPIC_RESOURCE) + compact_string(name) + _NULL + _NO_TAGS for name in topics]
    return Call(32, 4, compact_array(resources) + b"\0\0" + _NO_TAGS, _read_configs)


def _read_configs(fields: Fields) -> dict[str, Config]:
    fields.int32()
    configs = {}
    for _ in range(fields.compact_count()):
        code = fields.int16()
        fields.compact_string()
        fields.int8()
        name = fields.compact_string() or ""
        entries = [_read_entry(fields) for _ in range(fields.compact_count())]
        fields.tags()
        if code == 0:
            own = {key: value for key, value, source in entries if source == _FROM_THE_TOPIC}
            configs[name] = Config(own, {key: value for key, value, _ in entries})
    return configs


def _read_entry(fields: Fields) -> tuple[str, str, int]:
    key, value = fields.compact_string() or "", fields.compact_string() or ""
    fields.int8()
    source = fields.int8()
    fields.int8()
    for _ in range(fields.compact_count()):
        fields.compact_string()
        fields.compact_string()
        fields.int8()
        fields.tags()
    fields.int8()
    fields.compact_string()
    fields.tags()
    return key, value, source


def list_offsets(
    partitions: Iterable[TopicPartition], timestamp: int, *, committed: bool
) -> Call[list[Found]]:
    """Ask the leader of these partitions for the offset at a time, or LATEST, or EARLIEST."""
    topics: dict[str, list[bytes]] = {}
    for topic, number in partitions:
        packed = _LIST_OFFSETS_PARTITION.pack(number, -1, timestamp) + _NO_TAGS
        topics.setdefault(topic, []).append(packed)
    packed_topics = [
        compact_string(topic) + compact_array(parts) + _NO_TAGS for topic, parts in topics.items()
    ]
    body = _INT32.pack(_CLIENT) + _INT8.pack(int(committed)) + compact_array(packed_topics) + _NO_TAGS
    return Call(2, 6, body, _read_offsets)


def _read_offsets(fields: Fields) -> list[Found]:
    fields.int32()
    found = []
    for _ in range(fields.compact_count()):
        topic = fields.compact_string() or ""
        for _ in range(fields.compact_count()):
            number, code, _time, offset = fields.int32(), fields.int16(), fields.int64(), fields.int64()
            fields.int32()
            fields.tags()
            found.append(Found(TopicPartition(topic, number), code, offset))
        fields.tags()
    return found


def offset_fetch(group: str, partitions: Iterable[TopicPartition]) -> Call[tuple[int, list[Noted]]]:
    """Ask for a group's positions, refusing those that a transaction holds pending."""
    topics: dict[str, list[bytes]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(_INT32.pack(number))
    packed = [compact_string(topic) + compact_array(numbers) + _NO_TAGS for topic, numbers in topics.items()]
    body = compact_string(group) + compact_array(packed) + b"\x01" + _NO_TAGS
    return Call(9, 7, body, _read_positions)


def _read_positions(fields: Fields) -> tuple[int, list[Noted]]:
    fields.int32()
    found = []
    for _ in range(fields.compact_count()):
        topic = fields.compact_string() or ""
        for _ in range(fields.compact_count()):
            number, offset = fields.int32(), fields.int64()
            fields.int32()
            position = Position(offset, fields.compact_string() or "")
            found.append(Noted(TopicPartition(topic, number), fields.int16(), position))
            fields.tags()
        fields.tags()
    return fields.int16(), found


def describe_group(group: str) -> Call[DescribedGroup]:
    """Ask who is in a group."""
    return Call(15, 5, compact_array([compact_string(group)]) + b"\0" + _NO_TAGS, _read_group)


def _read_group(fields: Fields) -> DescribedGroup:
    fields.int32()
    fields.compact_count()
    code = fields.int16()
    for _ in range(3):
        fields.compact_string()
    protocol = fields.compact_string() or ""
    members = []
    for _ in range(fields.compact_count()):
        member_id = fields.compact_string() or ""
        for _ in range(3):
            fields.compact_string()
        claim, decision = fields.compact_bytes() or b"", fields.compact_bytes() or b""
        members.append(ShownMember(member_id, protocol, claim, decision))
        fields.tags()
    return DescribedGroup(code, members)
