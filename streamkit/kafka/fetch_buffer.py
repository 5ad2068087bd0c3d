"""What was fetched and not polled yet: one `Feed` per partition, one `FetchBuffer` per reader.

`broker_fetch.py` puts in, `reader.py` takes out. Everything here is plain code on one event loop.
"""

from collections import deque
from collections.abc import Container
from typing import NoReturn

from streamkit.errors import StreamkitError
from streamkit.kafka.fetch_calls import FetchLimits, asked
from streamkit.kafka.outage import Waiting
from streamkit.kafka.record_batches import Chunk
from streamkit.kafka.wakeup import Wakeup
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch

# A partition that cannot be read is tried again after this long, and up to this long when that goes on.
AGAIN_FIRST_S = 0.05
AGAIN_LAST_S = 1.0


class Feed:
    """One partition, read from one position on.

    A seek makes a new Feed, so an answer to an older question finds a dead one and is dropped.
    """

    __slots__ = (
        "again_at_s",
        "asked",
        "buffered_bytes",
        "chunks",
        "error",
        "failures",
        "in_flight",
        "live",
        "missing_since",
        "node",
        "partition",
        "paused",
        "position",
        "waiting",
    )

    def __init__(
        self, partition: TopicPartition, position: int, limits: FetchLimits, *, paused: bool
    ) -> None:
        self.partition = partition
        self.paused = paused
        self.live = True
        self.chunks: deque[Chunk] = deque()
        self.buffered_bytes = 0
        self.in_flight: object | None = None  # the connection on which it is being asked for
        self.error: StreamkitError | None = None
        self.node: int | None = None
        # How often in a row it could not be read, and when that is tried again.
        self.failures = 0
        self.again_at_s = 0.0
        self.waiting = Waiting("a partition cannot be read", partition=str(partition))
        self.missing_since: float | None = None
        self.move(position, limits)

    def failed(self, now_s: float) -> None:
        """It could not be read: try again, later each time."""
        self.again_at_s = now_s + min(AGAIN_LAST_S, AGAIN_FIRST_S * 2 ** min(self.failures, 10))
        self.failures += 1

    def move(self, position: int, limits: FetchLimits) -> None:
        """The next fetch asks for this offset."""
        self.position = position
        self.asked = asked(self.partition.partition, position, limits.partition_bytes)


class FetchBuffer:
    """Everything that waits for the caller, and how many bytes it is."""

    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits
        self.arrived = Wakeup()
        self.buffered_bytes = 0
        self._loaded: dict[TopicPartition, Feed] = {}

    def wants(self, feed: Feed) -> bool:
        """Whether there is room for more of this partition."""
        if (
            feed.in_flight is not None
            or feed.error is not None
            or feed.buffered_bytes >= self.limits.buffer_bytes
        ):
            return False
        return not feed.chunks or self.buffered_bytes < self.limits.total_bytes

    def put(self, feed: Feed, chunk: Chunk) -> None:
        """Add what a fetch brought."""
        feed.chunks.append(chunk)
        feed.buffered_bytes += chunk.size
        self.buffered_bytes += chunk.size
        feed.move(chunk.next_offset, self.limits)
        self._loaded[feed.partition] = feed
        if not feed.paused:
            self.arrived.set()

    def fail(self, feed: Feed, error: StreamkitError) -> None:
        """Let a poll raise this when nothing else is left to hand out; until then the partition rests."""
        if feed.live:
            feed.error = error
            self._loaded[feed.partition] = feed
            self.arrived.set()

    def drop(self, feed: Feed) -> None:
        """Forget this feed and what it holds."""
        feed.live = False
        self.buffered_bytes -= feed.buffered_bytes
        feed.chunks.clear()
        self._loaded.pop(feed.partition, None)

    def take(self, without: Container[TopicPartition] = ()) -> list[FetchedBatch]:
        """What waits in partitions that are neither paused nor in `without`, at most `poll_bytes` of it opened.

        Raises:
            Misconfigured: a partition failed, and nothing else is left to hand out.
        """
        self.arrived.clear()
        taken: list[FetchedBatch] = []
        failed: Feed | None = None
        left = self.limits.poll_bytes
        for feed in list(self._loaded.values()):
            if feed.partition in without:
                continue
            try:
                left -= self._take_feed(feed, taken, left)
            except StreamkitError as error:
                feed.error = error
            if feed.error is not None and failed is None:
                failed = feed
            if left <= 0:
                break
        if failed is not None and not taken:
            self._raise(failed)
        if left <= 0 or failed is not None:
            self.arrived.set()
        return taken

    def _take_feed(self, feed: Feed, taken: list[FetchedBatch], size_max: int) -> int:
        if feed.paused or feed.error is not None:
            return 0
        size = 0
        while feed.chunks and size < size_max:
            chunk = feed.chunks[0]
            batch = chunk.take(size_max - size)
            taken.append(batch)
            size += batch.size_bytes
            if chunk.done:
                feed.chunks.popleft()
                feed.buffered_bytes -= chunk.size
                self.buffered_bytes -= chunk.size
        # Out, and in again behind the others when more comes: nobody is always first.
        del self._loaded[feed.partition]
        if feed.chunks:
            self._loaded[feed.partition] = feed
        return size

    def _raise(self, feed: Feed) -> NoReturn:
        """Raised once; then the partition is tried again, and fails again if nobody mended it."""
        assert feed.error is not None
        error, feed.error = feed.error, None
        if not feed.chunks:
            self._loaded.pop(feed.partition, None)
        raise error
