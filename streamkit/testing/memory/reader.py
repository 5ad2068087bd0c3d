"""Reading from the in-memory log: positions, pauses, and what may be seen."""

import asyncio
from collections.abc import Container

from streamkit.errors import StreamkitError
from streamkit.kafka.missing import not_readable
from streamkit.model.ids import TopicPartition
from streamkit.model.records import FetchedBatch
from streamkit.testing.memory.bell import Bell, wait_any
from streamkit.testing.memory.client import REQUEST_TIMEOUT_S, Client, judge
from streamkit.testing.memory.network import NoReply
from streamkit.testing.memory.partition import Read
from streamkit.testing.memory.refusal import ErrorCode, Refused


class MemoryReader:
    """The `Reader` port in memory.

    It keeps no buffer: what was not handed out is found again at its position, which is the same to the caller.
    """

    def __init__(self, client: Client, fetch_bytes_max: int, *, committed: bool) -> None:
        self._client = client
        self._fetch_bytes_max = fetch_bytes_max
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}
        self._paused: dict[TopicPartition, None] = {}
        self._pointed = Bell()

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Read this partition from here on."""
        self._positions[partition] = offset
        self._pointed.fire()

    def forget(self, partition: TopicPartition) -> None:
        """Stop reading this partition."""
        self._positions.pop(partition, None)
        self._paused.pop(partition, None)

    def pause(self, partition: TopicPartition) -> None:
        """Hand out nothing of this partition until `resume`."""
        if partition in self._positions:
            self._paused[partition] = None

    def resume(self, partition: TopicPartition) -> None:
        """Hand out this partition again."""
        self._paused.pop(partition, None)
        self._pointed.fire()

    async def poll(self, timeout_s: float, *, without: Container[TopicPartition] = ()) -> list[FetchedBatch]:
        """What can be read now, else what arrives first within the time-out; see the port."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while True:
            fetched = await self._fetch(max(deadline - loop.time(), 0.0), without)
            if fetched or loop.time() >= deadline:
                return fetched
            # The broker is looked at from here only to know when to ask again, as a long poll would.
            while not self._has_news(without):
                await wait_any(self._client.broker.moved, self._pointed, timeout_s=deadline - loop.time())
                await self._client.network.awake()
                if loop.time() >= deadline and not self._has_news(without):
                    return []

    async def close(self) -> None:
        """Read nothing more."""
        self._positions.clear()

    def _active(self, without: Container[TopicPartition]) -> dict[TopicPartition, int]:
        return {
            each: offset
            for each, offset in self._positions.items()
            if each not in self._paused and each not in without
        }

    def _has_news(self, without: Container[TopicPartition]) -> bool:
        """Whether there is something to fetch by now."""
        try:
            return any(self._find(each, offset, 1) for each, offset in self._active(without).items())
        except Refused:
            return True

    async def _fetch(self, remaining_s: float, without: Container[TopicPartition]) -> list[FetchedBatch]:
        asked = self._active(without)

        def find() -> list[tuple[TopicPartition, Read]]:
            found = [(each, self._find(each, at, self._fetch_bytes_max)) for each, at in asked.items()]
            return [(each, read) for each, read in found if read is not None]

        try:
            answer = await self._client.ask("reader.fetch", find, min(remaining_s, REQUEST_TIMEOUT_S))
        except Refused as refused:
            if not self._still_asks(refused, asked):
                return []
            raise self._judge(refused) from None
        except NoReply:
            return []  # tried again until the caller's time is over
        return [self._hand_out(each, read) for each, read in answer if self._wants(each, asked[each])]

    def _find(self, partition: TopicPartition, offset: int, bytes_max: int) -> Read | None:
        stored = self._client.broker.topics.partition(partition)
        if not stored.start_offset <= offset <= stored.end_offset:
            where = f"{partition} at {offset}, which holds {stored.start_offset} to {stored.end_offset}"
            raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, where)
        return stored.read(offset, bytes_max, committed=self._committed)

    def _judge(self, refused: Refused) -> StreamkitError:
        if refused.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION or not isinstance(
            refused.at, TopicPartition
        ):
            return judge(refused)
        topic = self._client.broker.topics.find(refused.at.topic)
        return not_readable(refused.at, None if topic is None else len(topic.partitions))

    def _wants(self, partition: TopicPartition, offset: int) -> bool:
        """Whether nobody sought, paused or forgot this partition while the answer was on its way."""
        return partition not in self._paused and self._positions.get(partition) == offset

    def _still_asks(self, refused: Refused, asked: dict[TopicPartition, int]) -> bool:
        """Whether the refused position is still ours; a refusal of an earlier one means nothing."""
        return any(
            self._wants(each, offset) for each, offset in asked.items() if refused.where.startswith(str(each))
        )

    def _hand_out(self, partition: TopicPartition, read: Read) -> FetchedBatch:
        first_offset = self._positions[partition]
        self._positions[partition] = read.next_offset
        # An iterator, so that whoever walks it twice is found out.
        return FetchedBatch(partition, iter(read.records), first_offset, read.next_offset, read.size_bytes)
