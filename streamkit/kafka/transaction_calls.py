"""The requests of a transaction and of positions, packed by hand.

Every function gives a `Call`; the answer is a `Reply`: its codes, and the producer's identity where there is one.
Versions: those that the measured brokers share and that carry the member's generation. Choosing between them is the
writer's business (`writer.py`).
"""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamkit.kafka.transaction_port import NOBODY, Producer
from streamkit.kafka.wire import Call, Fields, compact_array, compact_string
from streamkit.model.commit import Member
from streamkit.model.ids import Position, TopicPartition

_PRODUCER = struct.Struct(">qh")
_INT32 = struct.Struct(">i")
_OFFSET = struct.Struct(">iqi")
_NO_TAGS = b"\0"
_NO_METADATA = b"\x01"  # an empty string: brokers before 3.0 do not take null
_NO_LEADER_EPOCH = -1

PRODUCE_KEY = 0
OFFSET_COMMIT_KEY = 8
HEARTBEAT_KEY = 12
API_VERSIONS_KEY = 18
INIT_PRODUCER_ID_KEY = 22
ADD_PARTITIONS_KEY = 24
ADD_OFFSETS_KEY = 25
END_TXN_KEY = 26
TXN_OFFSET_COMMIT_KEY = 28

# The finalized feature from which on the coordinator raises the epoch at the end of every transaction.
TRANSACTION_VERSION_2 = 2


class Reply(NamedTuple):
    """Error codes of an answer, one per thing asked for, and the identity it hands out."""

    codes: tuple[int, ...]
    identity: Producer = NOBODY


class Abilities(NamedTuple):
    """What a broker says of itself: versions per request, and the cluster's finalized transaction.version."""

    versions: dict[int, tuple[int, int]]
    transaction_version: int

    def best(self, key: int, low: int, high: int) -> int:
        """The highest version of this request that both sides know; `low` where there is none, which then fails."""
        return max(low, min(high, self.versions.get(key, (0, -1))[1]))


def api_versions() -> Call[Abilities]:
    """Ask a broker what it can do. The client asks too, but by a version that does not tell the features."""
    body = compact_string("streamkit") + compact_string("0") + _NO_TAGS
    return Call(API_VERSIONS_KEY, 3, body, _read_abilities, flexible_answer=False)


def _read_abilities(fields: Fields) -> Abilities:
    fields.int16()
    versions = {}
    for _ in range(fields.compact_count()):
        key, low, high = fields.int16(), fields.int16(), fields.int16()
        fields.tags()
        versions[key] = (low, high)
    fields.int32()
    finalized = fields.tags().get(2)
    return Abilities(versions, 0 if finalized is None else _transaction_version(Fields(finalized)))


def _transaction_version(features: Fields) -> int:
    level = 0
    for _ in range(features.compact_count()):
        name, high, _low = features.compact_string(), features.int16(), features.int16()
        features.tags()
        if name == "transaction.version":
            level = high
    return level


def init_producer_id(version: int, writer_id: str | None, timeout_ms: int, held: Producer) -> Call[Reply]:
    """Ask for a new epoch. `held` is NOBODY to take over, or what we hold: then a newer owner makes it fail."""
    body = compact_string(writer_id) + _INT32.pack(timeout_ms) + _PRODUCER.pack(*held) + _NO_TAGS
    return Call(INIT_PRODUCER_ID_KEY, version, body, _read_identity)


def end_txn(version: int, writer: bytes, held: Producer, *, commit: bool = True) -> Call[Reply]:
    """Commit, or abort. From version 5 on the answer carries the identity of the next transaction."""
    body = writer + _PRODUCER.pack(*held) + (b"\x01" if commit else b"\0") + _NO_TAGS
    return Call(END_TXN_KEY, version, body, _read_identity if version >= 5 else _read_code)


def add_partitions(writer: bytes, held: Producer, partitions: Iterable[TopicPartition]) -> Call[Reply]:
    """Make partitions part of the transaction before anything is written to them."""
    topics = [
        compact_string(topic) + compact_array([_INT32.pack(number) for number in numbers]) + _NO_TAGS
        for topic, numbers in _by_topic(partitions).items()
    ]
    body = writer + _PRODUCER.pack(*held) + compact_array(topics) + _NO_TAGS
    return Call(ADD_PARTITIONS_KEY, 3, body, _read_codes)


def add_offsets(writer: bytes, held: Producer, group: str) -> Call[Reply]:
    """Make the group's positions part of the transaction."""
    body = writer + _PRODUCER.pack(*held) + compact_string(group) + _NO_TAGS
    return Call(ADD_OFFSETS_KEY, 3, body, _read_code)


def txn_offset_commit(
    version: int,
    writer: bytes,
    held: Producer,
    member: Member,
    positions: Mapping[TopicPartition, int],
) -> Call[Reply]:
    """Set positions inside the transaction, if this member is still in this generation."""
    body = (
        writer
        + compact_string(member.group)
        + _PRODUCER.pack(*held)
        + _INT32.pack(member.generation)
        + compact_string(member.member_id)
        + compact_string(None)
        + _positions(positions)
        + _NO_TAGS
    )
    return Call(TXN_OFFSET_COMMIT_KEY, version, body, _read_codes)


def offset_commit(group: str, member: Member | None, positions: Mapping[TopicPartition, int]) -> Call[Reply]:
    """Set positions at once; without a member only a group without members takes them."""
    generation, member_id = (-1, "") if member is None else (member.generation, member.member_id)
    body = (
        compact_string(group)
        + _INT32.pack(generation)
        + compact_string(member_id)
        + compact_string(None)
        + _positions(positions)
        + _NO_TAGS
    )
    return Call(OFFSET_COMMIT_KEY, 8, body, _read_codes)


def heartbeat(member: Member) -> Call[Reply]:
    """Ask whether this member is still in this generation."""
    body = (
        compact_string(member.group)
        + _INT32.pack(member.generation)
        + compact_string(member.member_id)
        + compact_string(None)
        + _NO_TAGS
    )
    return Call(HEARTBEAT_KEY, 4, body, _read_code)


def _positions(positions: Mapping[TopicPartition, int]) -> bytes:
    topics: dict[str, list[bytes]] = {}
    for (topic, number), offset in positions.items():
        note = compact_string(offset.note) if isinstance(offset, Position) else _NO_METADATA
        packed = _OFFSET.pack(number, offset, _NO_LEADER_EPOCH) + note + _NO_TAGS
        topics.setdefault(topic, []).append(packed)
    return compact_array(
        [compact_string(topic) + compact_array(packed) + _NO_TAGS for topic, packed in topics.items()]
    )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def _read_code(fields: Fields) -> Reply:
    fields.int32()
    return Reply((fields.int16(),))


def _read_identity(fields: Fields) -> Reply:
    fields.int32()
    code = fields.int16()
    return Reply((code,), Producer(fields.int64(), fields.int16()))


def _read_codes(fields: Fields) -> Reply:
    fields.int32()
    codes = []
    for _ in range(fields.compact_count()):
        fields.take(fields.uvarint() - 1)
        for _ in range(fields.compact_count()):
            fields.int32()
            codes.append(fields.int16())
            fields.tags()
        fields.tags()
    return Reply(tuple(codes))
