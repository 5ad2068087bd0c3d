"""Fetch and ListOffsets as packed bytes, for the reader.

Fetch version 11 is the newest with fields of fixed size, so a partition without news is read over in one step. No
fetch session is used: the set of partitions changes with every pause, seek and full buffer.
"""

import struct
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from streamkit.kafka.record_batches import Aborted
from streamkit.kafka.wire import Call, Fields, array, string
from streamkit.model.ids import TopicPartition

FETCH = 1
LIST_OFFSETS = 2

_FETCH_VERSION = 11
_LIST_OFFSETS_VERSION = 2
_EARLIEST = -2
_LATEST = -1

# replica, wait, least bytes, most bytes, isolation, session id, session epoch, number of topics
_FETCH_HEAD = struct.Struct(">iiiibiii")
_NO_REPLICA = -1
_NO_SESSION = (0, -1)
# No forgotten topics, no rack.
_FETCH_TAIL = b"\0\0\0\0\0\0"
# partition, leader epoch, offset, log start, most bytes
_ASKED = struct.Struct(">iiqqi")
# partition, error, high watermark, last stable offset, log start, number of aborted transactions
_ANSWERED = struct.Struct(">ihqqqi")
# preferred replica, size of the records
_RECORDS = struct.Struct(">ii")
_ABORTED = struct.Struct(">qq")
_COUNT = struct.Struct(">i")
_TOPIC_SIZE = struct.Struct(">h")
_ANSWER_HEAD = struct.Struct(">ihii")


class FetchLimits(NamedTuple):
    """How much a fetch may bring and how much may wait for the caller."""

    # The broker answers when there is one byte, or after this time.
    wait_s: float = 0.5
    # Of one partition: 10,000 records of 100 bytes, enough to hide a round trip.
    partition_bytes: int = 1024 * 1024
    answer_bytes: int = 50 * 1024 * 1024
    # A partition with this much waiting is not fetched; one fetch may go beyond it.
    buffer_bytes: int = 4 * 1024 * 1024
    # With this much waiting in all, only partitions with nothing waiting are fetched.
    total_bytes: int = 128 * 1024 * 1024
    # What one poll opens at most: bounds the memory that compressed data can grow to.
    poll_bytes: int = 64 * 1024 * 1024


class Fetched(NamedTuple):
    """A partition that had something to say: an error code, or records.

    `data` is a part of the whole answer, and keeps all of it in memory.
    """

    topic: str
    partition: int
    error: int
    aborted: list[Aborted]
    data: memoryview


def asked(partition: int, offset: int, bytes_max: int) -> bytes:
    """One partition's part of a fetch."""
    return _ASKED.pack(partition, -1, offset, -1, bytes_max)


def fetch(
    wanted: Mapping[str, list[bytes]], wait_s: float, bytes_max: int, *, committed: bool
) -> Call[list[Fetched]]:
    """Records of these partitions, given by topic and packed by `asked`; waits at the broker until there are some."""
    wait_ms = max(0, int(wait_s * 1000))
    parts = [_FETCH_HEAD.pack(_NO_REPLICA, wait_ms, 1, bytes_max, committed, *_NO_SESSION, len(wanted))]
    for topic, partitions in wanted.items():
        parts += (string(topic), _COUNT.pack(len(partitions)), *partitions)
    parts.append(_FETCH_TAIL)
    return Call(FETCH, _FETCH_VERSION, b"".join(parts), _read_fetch, flexible=False)


def _read_fetch(fields: Fields) -> list[Fetched]:
    """Only partitions with an error or with records; this runs hundreds of times a second, hence no cursor."""
    buffer, at = fields.buffer, fields.at
    _, error, _, topics = _ANSWER_HEAD.unpack_from(buffer, at)
    if error:  # only fetch sessions have one here; it makes the client drop the connection, and us try again
        raise ValueError(f"a fetch without a session answered error code {error}")
    at += _ANSWER_HEAD.size
    whole = memoryview(buffer)
    found = []
    for _ in range(topics):
        (size,) = _TOPIC_SIZE.unpack_from(buffer, at)
        name = buffer[at + 2 : at + 2 + size]
        at += 2 + size
        (partitions,) = _COUNT.unpack_from(buffer, at)
        at += 4
        for _ in range(partitions):
            partition, error, _, _, _, aborted = _ANSWERED.unpack_from(buffer, at)
            at += 34
            begun = at
            if aborted > 0:
                at += 16 * aborted
            _, size = _RECORDS.unpack_from(buffer, at)
            at += 8
            if size > 0 or error:
                end = at + max(0, size)
                ends = list(_ABORTED.iter_unpack(buffer[begun : at - 8])) if aborted > 0 else []
                found.append(Fetched(name.decode(), partition, error, ends, whole[at:end]))
                at = end
    return found


def list_offsets(partitions: Iterable[TopicPartition], *, latest: bool) -> Call[dict[TopicPartition, int]]:
    """The first offset of each partition, or the one after its last record; those with an error are left out."""
    time = _LATEST if latest else _EARLIEST
    by_topic: dict[str, list[bytes]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(struct.pack(">iq", partition, time))
    topics = [string(topic) + array(items) for topic, items in by_topic.items()]
    body = struct.pack(">ib", _NO_REPLICA, 0) + array(topics)
    return Call(LIST_OFFSETS, _LIST_OFFSETS_VERSION, body, _read_list_offsets, flexible=False)


def _read_list_offsets(fields: Fields) -> dict[TopicPartition, int]:
    fields.int32()  # throttle
    found = {}
    for _ in range(fields.count()):
        topic = fields.string() or ""
        for _ in range(fields.count()):
            partition, error, _, offset = fields.int32(), fields.int16(), fields.int64(), fields.int64()
            if error == 0:
                found[TopicPartition(topic, partition)] = offset
    return found
