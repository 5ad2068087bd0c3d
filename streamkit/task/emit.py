"""emit: results, already encoded, into one open batch per output partition of the span.

Before this step the chain produced key bytes, value bytes and a timestamp; after it `task/span_end.py` takes all
batches and commits them. Nothing is sent before the commit: under exactly-once nobody could read it earlier.
"""

from collections.abc import Callable, Mapping, Sequence

import structlog

from streamkit.errors import EncodeError
from streamkit.model.commit import Batch, Batches, OutBatch
from streamkit.model.ids import MAX_TIME, MIN_TIME, TopicPartition
from streamkit.model.keys import KafkaPartitions, KeyMap
from streamkit.model.records import Headers
from streamkit.operators.step import Statements
from streamkit.state.budget import Cache
from streamkit.task.limits import TopicLimits

log = structlog.get_logger()

# By how much the broker's clock may differ from ours, and a span may last, where a topic bounds its timestamps.
CLOCKS_MS = 60_000

NO_HEADERS: list[tuple[str, bytes | None]] = []
# What the record format adds to key and value, generously.
RECORD_OVERHEAD_BYTES = 128


class Lane:
    """The open batches of one output topic, one per partition, and the full ones before them."""

    def __init__(self, topic: str, partitions: int, batches: Batches, limits: TopicLimits) -> None:
        self.topic = topic
        # What a broker takes as a timestamp. Shuffles carry any event time: their broker goes by its own clock.
        self.earliest, self.latest = MIN_TIME, MAX_TIME
        # What the broker keeps for a while; what is older it deletes soon, and that is said once.
        self._kept_from = MIN_TIME
        self._is_warned = False
        self.batches: list[Batch | None] = [None] * partitions
        self.counts = [0] * partitions
        self.full: list[OutBatch] = []
        self._source = batches
        self.learn(limits)
        # Partitions whose records stay in this worker: see `runtime/local.py`.
        self._doors: set[int] = set()

    def learn(self, limits: TopicLimits) -> None:
        """Go by these rules from the next batch on."""
        self.limits = limits
        # Batches stay below the broker's default; a single record may be as large as its topic allows.
        self.record_bytes_max = limits.record_bytes_max or self._source.batch_bytes_max
        self.batch_bytes_max = min(self.record_bytes_max, self._source.batch_bytes_max)

    def begin_span(self, now_ms: int) -> None:
        """Know from now on what is too old and what too far ahead."""
        before, after, kept = self.limits.before_ms_max, self.limits.after_ms_max, self.limits.retention_ms
        self.earliest = 0 if before is None else max(0, now_ms - before + min(CLOCKS_MS, before // 2))
        self.latest = MAX_TIME if after is None else now_ms + after - min(CLOCKS_MS, after // 2)
        self._kept_from = MIN_TIME if kept is None or self._is_warned else now_ms - kept

    def fit(self, timestamp: int) -> int:
        """A timestamp that the broker takes, for one that it would not.

        One that is too far ahead becomes the latest allowed: the end of a window may well be, and what it holds is
        right. An old one is what the record is about, and a topic that bounds them does not want it.

        Raises:
            EncodeError: it is too old.
        """
        if max(timestamp, 0) < self.earliest:
            raise EncodeError(
                f'a timestamp of {timestamp} is older than topic "{self.topic}" accepts',
                detail=f"message.timestamp.before.max.ms is {self.limits.before_ms_max}",
                hint="raise message.timestamp.before.max.ms of the topic, or write such records to another one",
            )
        return min(max(timestamp, 0), self.latest)

    def add(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Append to the open batch of this partition, with the nearest timestamp that the topic takes."""
        timestamp = min(max(timestamp, self.earliest), self.latest)
        batch = self.batches[partition]
        count = self.counts[partition]
        if batch is None or batch.append(count, timestamp, key, value, headers) is None:
            self._start(partition, key, value, timestamp, headers)
        else:
            self.counts[partition] = count + 1

    def add_rows(self, partition: int, rows: Mapping[bytes, bytes | None], timestamp: int) -> None:
        """Append many records to one partition: the changelog's way in, once per changed key and span."""
        batch = self.batches[partition]
        count = self.counts[partition]
        for key, value in rows.items():
            if batch is None or batch.append(count, timestamp, key, value, NO_HEADERS) is None:
                self.counts[partition] = count
                self._start(partition, key, value, timestamp, NO_HEADERS)
                batch = self.batches[partition]
                count = 0
            count += 1
        self.counts[partition] = count

    def _start(
        self, partition: int, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
    ) -> None:
        self.require_room(key, value, headers)
        if timestamp < self._kept_from:
            self._warn(timestamp)
        self._put_aside(partition)
        batch = self._source.batch(self.batch_bytes_max)
        batch.append(0, timestamp, key, value, headers)
        self.batches[partition] = batch
        self.counts[partition] = 1

    @property
    def row_bytes_max(self) -> int:
        """How large key and value of one record may be together."""
        return self.record_bytes_max - RECORD_OVERHEAD_BYTES

    def require_room(self, key: bytes | None, value: bytes | None, headers: Headers = NO_HEADERS) -> None:
        """Refuse a record that its topic would refuse for its size.

        Raises:
            EncodeError: it is larger than that.
        """
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
        if headers:
            size += sum(len(name) + len(content or b"") for name, content in headers)
        if size > self.record_bytes_max:
            raise EncodeError(
                f'a record of {size} bytes is larger than topic "{self.topic}" accepts ({self.record_bytes_max})',
                hint="write smaller values, or raise max.message.bytes of the topic and start the worker again",
            )

    def _warn(self, timestamp: int) -> None:
        """Say that the broker will delete what it is given; looked at once per batch, so that no record pays for it."""
        self._is_warned = True
        self._kept_from = MIN_TIME
        log.warning(
            "records are older than their topic keeps them: the broker deletes them soon",
            topic=self.topic,
            timestamp=timestamp,
            retention_ms=self.limits.retention_ms,
            hint="raise retention.ms of the topic, or set its message.timestamp.type to LogAppendTime",
        )

    def _put_aside(self, partition: int) -> None:
        batch = self.batches[partition]
        if batch is not None:
            self.full.append(OutBatch(TopicPartition(self.topic, partition), batch, self.counts[partition]))
            self.batches[partition] = None
            self.counts[partition] = 0

    def open_door(self, partition: int, batch: Batch) -> None:
        """Append what is for this partition to `batch`, which stays here, until the doors are closed."""
        self._doors.add(partition)
        self.batches[partition] = batch

    def close_doors(self) -> None:
        """Build batches for the broker again."""
        for partition in self._doors:
            self.batches[partition] = None
            self.counts[partition] = 0
        self._doors.clear()

    def divert(self, diverted: Sequence[Batch]) -> Callable[[], None]:
        """Append what is for each partition to its batch in `diverted`, until the function that is returned is called."""
        batches, counts = list(self.batches), list(self.counts)
        self.batches[:] = diverted

        def restore() -> None:
            self.batches[:] = batches
            self.counts[:] = counts

        return restore

    @property
    def bytes_waiting(self) -> int:
        """About how many bytes wait here for the commit, in full batches and in open ones."""
        full = len(self.full) * self.batch_bytes_max
        return full + sum([batch.size() for batch in self.batches if batch is not None])

    @property
    def is_filled(self) -> bool:
        """Whether records wait here for the commit."""
        return bool(self.full) or any(
            count for partition, count in enumerate(self.counts) if partition not in self._doors
        )

    @property
    def records(self) -> int:
        """How many records wait here; of a lane without doors."""
        return sum(self.counts) + sum(batch.count for batch in self.full)

    def take(self) -> list[OutBatch]:
        """All batches, in order within each partition; the lane is empty afterwards."""
        for partition in range(len(self.batches)):
            if partition not in self._doors:
                self._put_aside(partition)
        taken, self.full = self.full, []
        return taken


class Outbox:
    """All output of the open span, of every task of the worker."""

    def __init__(self, batches: Batches, limits: Mapping[str, TopicLimits] | None = None) -> None:
        """`limits` are the rules of the topics; one without rules is taken for a Kafka 4 topic with its defaults."""
        self._source = batches
        self._limits = limits or {}
        self._lanes: dict[str, Lane] = {}
        self._sinks: dict[str, KafkaPartitions] = {}
        self._bounded: dict[str, Lane] = {}
        # What was remembered of keys, and can be forgotten when memory is short.
        self.caches: list[Cache] = []

    @property
    def bytes_waiting(self) -> int:
        """About how many bytes are waiting for the commit; asked between two slices, so that no record is counted."""
        return sum(lane.bytes_waiting for lane in self._lanes.values())

    @property
    def is_filled(self) -> bool:
        """Whether records wait for the commit."""
        return any(lane.is_filled for lane in self._lanes.values())

    @property
    def results(self) -> int:
        """How many records for others wait for the commit."""
        return sum(self._lanes[topic].records for topic in self._sinks)

    def lane(self, topic: str, partitions: int) -> Lane:
        """The lane of a topic; made at the first call."""
        lane = self._lanes.get(topic)
        if lane is None:
            limits = self._limits.get(topic, TopicLimits())
            lane = self._lanes[topic] = Lane(topic, partitions, self._source, limits)
        return lane

    def append_code(
        self, topic: str, partition_of: Mapping[bytes | None, int], partitions: int
    ) -> Statements:
        """The statements that append to the right partition of a topic; see `Scope.output`."""
        lane = self.lane(topic, partitions)
        if isinstance(partition_of, KeyMap):
            self.caches.append(partition_of)
        if not isinstance(partition_of, KafkaPartitions):
            return _append_code(lane, partition_of, ())
        self._sinks[topic] = partition_of
        if lane.limits.needs_key:
            partition_of.needs_key(topic)
        bound = _BOUND if lane.limits.before_ms_max is None else _BOUND_BOTH
        return _append_code(self.bound(lane), partition_of, bound)

    def bound(self, lane: Lane) -> Lane:
        """Let nothing into this lane that a broker would refuse for its timestamp."""
        lane.earliest = 0
        self._bounded[lane.topic] = lane
        return lane

    @property
    def topics(self) -> list[str]:
        """All topics that were written to so far, or may be."""
        return list(self._lanes)

    def learn(self, limits: Mapping[str, TopicLimits]) -> bool:
        """Go by these rules from the next span on; whether any of them is another than before."""
        self._limits = {**self._limits, **limits}
        changed = [
            lane for lane in self._lanes.values() if limits.get(lane.topic, lane.limits) != lane.limits
        ]
        for lane in changed:
            lane.learn(limits[lane.topic])
        return bool(changed)

    def grow(self, topic: str, partitions: int) -> None:
        """A sink has more partitions now: use them too, from the next span on."""
        lane = self._lanes[topic]
        more = partitions - len(lane.batches)
        lane.batches += [None] * more
        lane.counts += [0] * more
        if topic in self._sinks:
            self._sinks[topic].grow(partitions)

    def begin_span(self, now_ms: int) -> None:
        """Know what is too old and what too far ahead from now on."""
        for lane in self._bounded.values():
            lane.begin_span(now_ms)

    def take(self) -> list[OutBatch]:
        """Every batch of the span; the outbox is empty afterwards."""
        for partitions in self._sinks.values():
            partitions.rotate()
        return [batch for lane in self._lanes.values() for batch in lane.take()]

    def drop(self) -> None:
        """Forget the span's output."""
        for lane in self._lanes.values():
            lane.take()


# The hot end of every chain, as statements of the step that writes: no call per record but the batch's own.
_APPEND = (
    "partition = partition_of[out_key]",
    "batch = batches[partition]",
    "count = counts[partition]",
    "if batch is None or batch.append(count, timestamp, out_key, data, headers) is None:",
    "    start(partition, out_key, data, timestamp, headers)",
    "else:",
    "    counts[partition] = count + 1",
)
# Hardly a topic bounds how old its records may be: only those look it up.
_BOUND = ("if not 0 <= timestamp <= lane.latest: timestamp = lane.fit(timestamp)",)
_BOUND_BOTH = ("if not lane.earliest <= timestamp <= lane.latest: timestamp = lane.fit(timestamp)",)


def _append_code(lane: Lane, partition_of: Mapping[bytes | None, int], bound: tuple[str, ...]) -> Statements:
    names = {
        "lane": lane,
        "partition_of": partition_of,
        "batches": lane.batches,
        "counts": lane.counts,
        "start": lane._start,  # noqa: SLF001 - the slow half of the same idea, in this file
        "headers": NO_HEADERS,
    }
    return Statements("", (*bound, *_APPEND), names)
