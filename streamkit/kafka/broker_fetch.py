"""The fetches to one broker: one long poll for all its partitions, and one beside it for what cannot wait.

A partition that becomes wanted while the long poll is out (a seek, a resume, a buffer that was emptied) would wait
until that poll ends, because the broker answers a connection's requests one by one. It is asked for on a second
connection instead. Both polls end at the same time, so that at that moment all partitions go into one again: with
steady work there is one fetch in flight, and never more than two.
"""

import asyncio

from aiokafka.errors import KafkaError

from streamkit.errors import LogGap, Misconfigured
from streamkit.kafka.connection import Connection, NoAnswer
from streamkit.kafka.error_codes import ErrorCode, name_of
from streamkit.kafka.fetch_buffer import Feed, FetchBuffer
from streamkit.kafka.fetch_calls import Fetched, fetch, list_offsets
from streamkit.kafka.record_batches import Chunk
from streamkit.kafka.wakeup import Wakeup
from streamkit.model.ids import TopicPartition

# A second poll would have to end within this time: not worth a request, the first one is about to return.
_JOIN_S = 0.005
# After an answer smaller than this nothing is fetched ahead: the next poll asks, and gets what is newest then. A calm
# topic costs a fetch per poll and not one per record.
SMALL_BYTES = 64 * 1024
_ANSWER_BYTES_MIN = 256 * 1024

_FORBIDDEN = {ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
_UNREADABLE = {ErrorCode.UNSUPPORTED_VERSION, 76}  # 76: the broker cannot send this compression to us


class _Slot:
    """One of the two connections."""

    __slots__ = ("lane", "until", "wakeup")

    def __init__(self, lane: int) -> None:
        self.lane = lane
        self.wakeup = Wakeup()
        self.until: float | None = None  # when the fetch in flight ends at the latest


class BrokerFetch:
    """Keeps the feeds of one broker supplied until it is closed."""

    def __init__(
        self,
        connection: Connection,
        node: int,
        intake: FetchBuffer,
        homeless: Wakeup,
        *,
        committed: bool,
        lanes: tuple[int, int],
    ) -> None:
        self.node = node
        self._connection = connection
        self._intake = intake
        self._homeless = homeless
        self._committed = committed
        self._answer_bytes = intake.limits.answer_bytes
        self._feeds: dict[TopicPartition, Feed] = {}
        self._loop = asyncio.get_running_loop()
        self._slots = (_Slot(lanes[0]), _Slot(lanes[1]))
        first, second = self._slots
        self.tasks = [
            self._loop.create_task(self._run(first, second)),
            self._loop.create_task(self._run(second, first)),
        ]

    def add(self, feed: Feed) -> None:
        """Read this feed from now on."""
        self._feeds[feed.partition] = feed
        self.wake()

    def remove(self, feed: Feed) -> None:
        """Stop reading this feed; what is under way for it will be dropped."""
        if self._feeds.get(feed.partition) is feed:
            del self._feeds[feed.partition]

    def wake(self) -> None:
        """Look again: there may be more room or a new feed."""
        first, second = self._slots
        idle, other = (first, second) if first.until is None else (second, first)
        if idle.until is None and (other.until is None or any(map(self._intake.wants, self._feeds.values()))):
            idle.wakeup.set()

    async def _run(self, slot: _Slot, other: _Slot) -> None:
        while True:
            wait_s = self._wait_s(other)
            wanted = [feed for feed in self._feeds.values() if self._intake.wants(feed)] if wait_s > 0 else []
            if not wanted:
                # Whoever makes a feed wanted wakes us; if the other slot is about to return, it takes them all.
                await slot.wakeup.wait(None)
                continue
            received = await self._fetch(slot, wanted, wait_s)
            # Rest only if a poll was told of it, for the one after wakes us. Nobody is told of what came for a partition
            # that is paused, or was forgotten meanwhile; but another may wait for this fetch to end.
            if 0 < received < SMALL_BYTES and self._intake.arrived.is_set:
                await slot.wakeup.wait(None)

    def _wait_s(self, other: _Slot) -> float:
        """How long a fetch sent now may wait at the broker; 0 if it should not be sent."""
        if other.until is None:
            return self._intake.limits.wait_s
        left = other.until - self._loop.time()
        return left if left > _JOIN_S else 0.0

    async def _fetch(self, slot: _Slot, wanted: list[Feed], wait_s: float) -> int:
        """One fetch; returns how many bytes of records it brought."""
        by_topic: dict[str, list[bytes]] = {}
        for feed in wanted:
            feed.in_flight = slot
            by_topic.setdefault(feed.partition.topic, []).append(feed.asked)
        call = fetch(by_topic, wait_s, self._answer_bytes, committed=self._committed)
        slot.until = self._loop.time() + wait_s
        try:
            answer = await self._connection.send(self.node, call, slot.lane)
            out_of_range = self._accept_all(slot, answer)
        except NoAnswer:
            # On a slow line a full answer may take longer than the client waits for it: ask for less and less.
            self._answer_bytes = max(_ANSWER_BYTES_MIN, self._answer_bytes // 2)
            self._lose(wanted, f"no answer from broker {self.node}")
            return 0
        finally:
            slot.until = None
            for feed in wanted:
                feed.in_flight = None
        self._answer_bytes = min(self._intake.limits.answer_bytes, self._answer_bytes * 2)
        for feed in out_of_range:
            await self._judge_position(feed)
        return sum(len(fetched.data) for fetched in answer)

    def _accept_all(self, slot: _Slot, answer: list[Fetched]) -> list[Feed]:
        """Take in what came; returns the feeds whose position is outside the log."""
        out_of_range = []
        for fetched in answer:
            feed = self._feeds.get(TopicPartition(fetched.topic, fetched.partition))
            if feed is None or feed.in_flight is not slot:
                continue  # it was forgotten or sought elsewhere meanwhile
            if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
                out_of_range.append(feed)
            elif fetched.error:
                self._judge(feed, fetched.error)
            else:
                self._accept(feed, fetched)
        return out_of_range

    def _accept(self, feed: Feed, fetched: Fetched) -> None:
        # What is read soon stays where it arrived. A paused partition gets a copy: it would keep the others' bytes too.
        data = bytes(fetched.data) if feed.paused else fetched.data
        try:
            chunk = Chunk(feed.partition, feed.position, data, fetched.aborted)
        except Misconfigured as error:
            self._intake.fail(feed, error)
            return
        if chunk.done:  # not even one whole batch, which no broker of today answers: ask again, not at once
            self._lose([feed], "a fetch brought no whole batch")
            return
        feed.failures = 0
        feed.waiting.over()
        # Behind the others in the next fetch: an answer has a largest size, and the broker fills it in our order.
        self._feeds.pop(feed.partition, None)
        self._feeds[feed.partition] = feed
        self._intake.put(feed, chunk)

    def _judge(self, feed: Feed, code: int) -> None:
        """What an error of one partition means; all that may pass by itself is tried again."""
        if code in _FORBIDDEN:
            self._intake.fail(feed, forbidden(feed.partition.topic))
        elif code in _UNREADABLE:
            self._intake.fail(
                feed,
                Misconfigured(
                    f"the broker cannot give us the records at offset {feed.position}",
                    where=str(feed.partition),
                    detail=f"Fetch answered {name_of(code)}",
                    hint="streamkit needs Kafka 2.5 or newer",
                ),
            )
        else:
            self._lose([feed], f"Fetch answered {name_of(code)}")

    async def _judge_position(self, feed: Feed) -> None:
        """A position outside the log, unless the log's bounds say otherwise: right after a change of leader."""
        place = feed.partition
        try:
            first, last = [
                (
                    await self._connection.send(
                        self.node, list_offsets([place], latest=latest), self._slots[1].lane
                    )
                ).get(place)
                for latest in (False, True)
            ]
        except (*NoAnswer, KafkaError):
            first = last = None
        if first is None or last is None or first <= feed.position <= last:
            self._lose([feed], "its leader does not know what it holds")
            return
        self._intake.fail(feed, log_gap(place, feed.position, (first, last)))

    def _lose(self, feeds: list[Feed], why: str) -> None:
        """Hand feeds back: somebody else may lead them now."""
        for feed in feeds:
            if feed.live:
                self.remove(feed)
                feed.node = None
                feed.failed(self._loop.time())
                feed.waiting.failed(why)
                self._homeless.set()


def log_gap(place: TopicPartition, position: int, held: tuple[int, int]) -> LogGap:
    """Records that we should read next are not there any more."""
    first, last = held
    reason = (
        "retention, or somebody by hand, deleted what we had not read yet"
        if position < first
        else "the topic is shorter than what we had read: it was truncated or created anew"
    )
    return LogGap(
        f"position {position} is outside the log, which holds offsets {first} to {last}",
        where=str(place),
        detail=reason,
        hint="stop the workers, then `streamkit offsets reset <pipeline> --accept-gap` shows what is lost and,\n"
        "with --execute, goes on behind it with the state as it is",
    )


def forbidden(topic: str) -> Misconfigured:
    """A topic that we may not read."""
    return Misconfigured(
        f'we are not allowed to read topic "{topic}"',
        detail="the broker answered TOPIC_AUTHORIZATION_FAILED",
        hint="give our user the ACLs READ and DESCRIBE on it",
    )
