"""The reader: which partitions are read from where, and the poll that hands out what came.

Behind it, `broker_fetch.py` keeps a fetch under way to each broker, so that the next records travel while the caller
works on the last ones; `fetch_buffer.py` holds what arrived; `record_batches.py` opens it when it is polled.
"""

import asyncio
import math
from collections.abc import Container

import structlog

from streamkit.errors import Misconfigured
from streamkit.kafka.broker_fetch import SMALL_BYTES, BrokerFetch, forbidden
from streamkit.kafka.connection import Connection
from streamkit.kafka.fetch_buffer import AGAIN_FIRST_S, Feed, FetchBuffer
from streamkit.kafka.fetch_calls import FetchLimits
from streamkit.kafka.missing import not_readable
from streamkit.kafka.record_batches import CorruptBatch
from streamkit.kafka.wakeup import Wakeup
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch

log = structlog.get_logger()

# A topic that was just created is known everywhere well within this time.
MISSING_S = 10.0
# A damaged batch is fetched again, after 0.1, 0.4 and 1.6 s: it may have been damaged on its way, or lie whole in a
# replica that leads by then.
CORRUPT_TRIES_MAX = 3
_CORRUPT_FIRST_S = 0.1
# Nobody waits longer than this for metadata; the next try asks again.
_METADATA_S = 10.0


class KafkaReader:
    """Reads partitions of a cluster; keeps the promises of the `Reader` port."""

    def __init__(
        self,
        connection: Connection,
        *,
        committed: bool,
        limits: FetchLimits | None = None,
    ) -> None:
        self._connection = connection
        self._committed = committed
        # Lanes of its own: two readers on one lane would each wait for the other's long poll.
        self._lanes = connection.new_lane(), connection.new_lane()
        self._limits = FetchLimits() if limits is None else limits
        self._intake = FetchBuffer(self._limits)
        self._feeds: dict[TopicPartition, Feed] = {}
        self._fetches: dict[int, BrokerFetch] = {}
        self._homeless = Wakeup()
        self._tasks: list[asyncio.Task[None]] = []
        self._broken: BaseException | None = None
        # Where damaged batches were met, and how often they were fetched again.
        self._corrupt: dict[tuple[TopicPartition, int], int] = {}
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from here on; drops what was buffered of it. Also starts reading a new partition."""
        if not self._tasks:
            self._start(asyncio.get_running_loop().create_task(self._place_for_ever()))
        old = self._feeds.get(partition)
        feed = Feed(partition, offset, self._limits, paused=old is not None and old.paused)
        self._feeds[partition] = feed
        if old is not None:
            self._discard(old)
            feed.node = old.node
        if feed.node is None:
            self._homeless.set()
        else:
            self._fetches[feed.node].add(feed)

    def forget(self, partition: TopicPartition) -> None:
        """Stop reading this partition and drop what was buffered of it."""
        feed = self._feeds.pop(partition, None)
        if feed is not None:
            self._discard(feed)

    def pause(self, partition: TopicPartition) -> None:
        """Hand out nothing of this partition until `resume`."""
        feed = self._feeds.get(partition)
        if feed is not None:
            feed.paused = True

    def resume(self, partition: TopicPartition) -> None:
        """Hand out this partition again."""
        feed = self._feeds.get(partition)
        if feed is not None:
            feed.paused = False
            if feed.chunks:
                self._intake.arrived.set()

    async def poll(self, timeout_s: float, *, without: Container[TopicPartition] = ()) -> list[FetchedBatch]:
        """Everything that is buffered now, else what arrives first within the time-out; may be empty.

        Nothing is awaited after records were taken, so a cancelled poll loses none.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        await asyncio.sleep(0)  # a caller that always finds records still lets the fetches go on
        while True:
            if self._broken is not None:
                raise self._broken
            taken = await self._take(without)
            if taken:
                # Much came, so more will be there: it travels while the caller works. After little, the next fetch
                # waits for the next poll, which then gets what is newest, in one request.
                if sum(batch.size_bytes for batch in taken) >= SMALL_BYTES:
                    self._go_on()
                return taken
            self._go_on()
            left = until - loop.time()
            if left <= 0:
                return []
            await self._intake.arrived.wait(left)

    async def close(self) -> None:
        """Stop fetching and release connections."""
        if self._closed:
            return
        self._closed = True
        for partition in list(self._feeds):
            self.forget(partition)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for lane in self._lanes:
            self._connection.drop(lane)

    async def _take(self, without: Container[TopicPartition]) -> list[FetchedBatch]:
        try:
            taken = self._intake.take(without)
        except CorruptBatch as error:
            await self._fetch_again(error)
            return []
        except Misconfigured:
            self._go_on()
            raise
        for batch in taken if self._corrupt else ():
            self._corrupt.pop((batch.partition, batch.first_offset), None)
        return taken

    async def _fetch_again(self, error: CorruptBatch) -> None:
        """Drop a batch that was damaged on its way, or at the broker, and ask for it once more, later each time.

        Raises:
            CorruptBatch: it has come like that too often.
        """
        place = error.partition, error.position
        tries = self._corrupt.get(place, 0)
        if tries == CORRUPT_TRIES_MAX:
            self._corrupt.pop(place)
            self._go_on()
            raise error
        if tries == 0:
            log.warning("a batch is damaged: fetched again", partition=str(place[0]), error=str(error))
        self._corrupt[place] = tries + 1
        await asyncio.sleep(_CORRUPT_FIRST_S * 4**tries)
        self.seek(*place)

    def _go_on(self) -> None:
        """Something was taken: there is room to fetch, and a feed whose error was raised is tried again."""
        for fetching in self._fetches.values():
            fetching.wake()
        if any(feed.node is None for feed in self._feeds.values()):
            self._homeless.set()

    def _discard(self, feed: Feed) -> None:
        self._intake.drop(feed)
        if feed.node is not None:
            self._fetches[feed.node].remove(feed)

    def _start(self, task: asyncio.Task[None]) -> None:
        self._tasks.append(task)
        task.add_done_callback(self._on_end)

    def _on_end(self, task: asyncio.Task[None]) -> None:
        """A background asyncio.Task only ends by an error that nobody expected: let the caller see it."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._broken = error
            self._intake.arrived.set()

    async def _place_for_ever(self) -> None:
        """Give every feed without a broker to the leader of its partition."""
        while True:
            homeless = [feed for feed in self._feeds.values() if feed.node is None and feed.error is None]
            fresh = [feed for feed in homeless if feed.failures == 0]
            if fresh:
                await self._learn({feed.partition.topic for feed in fresh})
                self._place(fresh, answered=False)
                continue
            # Each has a pause of its own, which neither a new feed nor the loss of another one shortens; those whose time
            # has nearly come go along.
            now_s = asyncio.get_running_loop().time()
            wait_s = min((feed.again_at_s for feed in homeless), default=math.inf) - now_s
            if wait_s <= 0:
                due = [feed for feed in homeless if feed.again_at_s <= now_s + AGAIN_FIRST_S]
                self._place(due, answered=await self._learn(None))
            else:
                await self._homeless.wait(None if wait_s == math.inf else wait_s)

    async def _learn(self, topics: set[str] | None) -> bool:
        """Have metadata of new topics, or ask for all of it anew; whether somebody answered."""
        try:
            async with asyncio.timeout(_METADATA_S):
                if topics is None:
                    return await self._connection.refresh()
                await self._connection.watch(topics)
        except TimeoutError:
            return False
        return True

    def _place(self, feeds: list[Feed], *, answered: bool) -> None:
        for feed in feeds:
            if not feed.live or feed.node is not None:
                continue
            node = self._connection.leader(feed.partition)
            if node is None:
                feed.failed(asyncio.get_running_loop().time())
                if answered:
                    feed.waiting.failed("it has no leader")
                    self._judge_missing(feed)
                continue
            feed.missing_since = None
            feed.node = node
            self._fetch_of(node).add(feed)

    def _judge_missing(self, feed: Feed) -> None:
        """The cluster answered and names no leader: not allowed, not there, or between two leaders."""
        topic, partition = feed.partition
        if self._connection.is_forbidden(topic):
            self._intake.fail(feed, forbidden(topic))
            return
        count = self._connection.partition_count(topic)
        if count is not None and partition < count:
            return
        now = asyncio.get_running_loop().time()
        if feed.missing_since is None:
            feed.missing_since = now
        elif now - feed.missing_since > MISSING_S:
            detail = f"asked the cluster for {MISSING_S:.0f} seconds"
            self._intake.fail(feed, not_readable(feed.partition, count, detail))

    def _fetch_of(self, node: int) -> BrokerFetch:
        fetching = self._fetches.get(node)
        if fetching is None:
            fetching = self._fetches[node] = BrokerFetch(
                self._connection,
                node,
                self._intake,
                self._homeless,
                committed=self._committed,
                lanes=self._lanes,
            )
            for task in fetching.tasks:
                self._start(task)
        return fetching
