"""emit: results, already encoded, into one open batch per output partition of the span.

Before this step the chain produced key bytes, value bytes and a timestamp; after it `runtime/commit.py` takes all
batches and commits them. Nothing is sent before the commit: under exactly-once nobody could read it earlier.
"""

from collections.abc import Mapping

from streamkit.errors import EncodeError
from streamkit.kafka.ports import Batch, OutBatch, Writer
from streamkit.kafka.records import Headers
from streamkit.model.ids import MAX_TIME, MIN_TIME, TopicPartition
from streamkit.model.keys import KafkaPartitions
from streamkit.operators.step import Code

# A broker refuses records whose timestamp is more than an hour ahead of its clock (message.timestamp.after.max.ms). The end
# of a window may be: such a record goes out with the latest timestamp that is allowed, less a minute for the clocks.
AHEAD_MS_MAX = 59 * 60 * 1000

NO_HEADERS: list[tuple[str, bytes | None]] = []
# What the record format adds to key and value, generously.
RECORD_OVERHEAD_BYTES = 128


class Lane:
    """The open batches of one output topic, one per partition, and the full ones before them."""

    def __init__(self, topic: str, partitions: int, writer: Writer, batch_bytes_max: int) -> None:
        self.topic = topic
        # What a broker takes as a timestamp. Shuffles carry any event time: their broker goes by its own clock.
        self.earliest, self.latest = MIN_TIME, MAX_TIME
        self.batches: list[Batch | None] = [None] * partitions
        self.counts = [0] * partitions
        self.full: list[OutBatch] = []
        self.batch_bytes_max = batch_bytes_max
        self._writer = writer
        # Partitions whose records stay in this worker: see `runtime/local.py`.
        self._doors: set[int] = set()

    def add(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = NO_HEADERS,
    ) -> None:
        """Append to the open batch of this partition; start a new one if it is full."""
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
        size = len(key or b"") + len(value or b"") + RECORD_OVERHEAD_BYTES
        size += sum(len(name) + len(content or b"") for name, content in headers)
        if size > self.batch_bytes_max:
            raise EncodeError(
                f'a record of {size} bytes is larger than topic "{self.topic}" accepts ({self.batch_bytes_max})',
                hint="write smaller values, or raise max.message.bytes of the topic",
            )
        self._put_aside(partition)
        batch = self._writer.batch(self.batch_bytes_max)
        batch.append(0, timestamp, key, value, headers)
        self.batches[partition] = batch
        self.counts[partition] = 1

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

    @property
    def is_filled(self) -> bool:
        """Whether records wait here for the commit."""
        return bool(self.full) or any(
            count for partition, count in enumerate(self.counts) if partition not in self._doors
        )

    def take(self) -> list[OutBatch]:
        """All batches, in order within each partition; the lane is empty afterwards."""
        for partition in range(len(self.batches)):
            if partition not in self._doors:
                self._put_aside(partition)
        taken, self.full = self.full, []
        return taken


class Outbox:
    """All output of the open span, of every task of the worker."""

    def __init__(self, writer: Writer, limits: Mapping[str, int] | None = None) -> None:
        """`limits` are the largest batches, in bytes, of topics that take less than the writer would send."""
        self._writer = writer
        self._limits = limits or {}
        self._lanes: dict[str, Lane] = {}
        self._keyless: list[KafkaPartitions] = []
        self._bounded: list[Lane] = []

    @property
    def bytes_waiting(self) -> int:
        """About how many bytes of full batches are waiting for the commit."""
        return sum(len(lane.full) for lane in self._lanes.values()) * self._writer.batch_bytes_max

    @property
    def is_filled(self) -> bool:
        """Whether records wait for the commit."""
        return any(lane.is_filled for lane in self._lanes.values())

    def lane(self, topic: str, partitions: int) -> Lane:
        """The lane of a topic; made at the first call."""
        lane = self._lanes.get(topic)
        if lane is None:
            limit = min(self._limits.get(topic, self._writer.batch_bytes_max), self._writer.batch_bytes_max)
            lane = self._lanes[topic] = Lane(topic, partitions, self._writer, limit)
        return lane

    def append_code(self, topic: str, partition_of: Mapping[bytes | None, int], partitions: int) -> Code:
        """The statements that append to the right partition of a topic; see `Scope.output`."""
        lane = self.lane(topic, partitions)
        if not isinstance(partition_of, KafkaPartitions):
            return _append_code(lane, partition_of, is_bounded=False)
        self._keyless.append(partition_of)
        return _append_code(self.bound(lane), partition_of, is_bounded=True)

    def bound(self, lane: Lane) -> Lane:
        """Let nothing into this lane that a broker would refuse for its timestamp."""
        lane.earliest = 0
        self._bounded.append(lane)
        return lane

    def begin_span(self, now_ms: int) -> None:
        """Know what is too far ahead from now on."""
        for lane in self._bounded:
            lane.latest = now_ms + AHEAD_MS_MAX

    def take(self) -> list[OutBatch]:
        """Every batch of the span; the outbox is empty afterwards."""
        for partitions in self._keyless:
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
    "if batch is None or batch.append(count, timestamp, out_key, data, NO_HEADERS) is None:",
    "    start(partition, out_key, data, timestamp, NO_HEADERS)",
    "else:",
    "    counts[partition] = count + 1",
)
_BOUND = ("if not 0 <= timestamp <= lane.latest: timestamp = min(max(timestamp, 0), lane.latest)",)


def _append_code(lane: Lane, partition_of: Mapping[bytes | None, int], *, is_bounded: bool) -> Code:
    names = {
        "lane": lane,
        "partition_of": partition_of,
        "batches": lane.batches,
        "counts": lane.counts,
        "start": lane._start,  # noqa: SLF001 - the slow half of the same idea, in this file
        "NO_HEADERS": NO_HEADERS,
    }
    return Code("", (*_BOUND, *_APPEND) if is_bounded else _APPEND, names)
