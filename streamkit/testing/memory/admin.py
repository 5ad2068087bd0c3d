"""Questions to the in-memory cluster as a whole."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from streamkit.errors import Retry
from streamkit.kafka.shown_member import ShownMember
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.topic_shape import TopicInfo, TopicSpec
from streamkit.testing.memory.bell import wait_any
from streamkit.testing.memory.client import Client
from streamkit.testing.memory.partition import MemoryPartition

R = TypeVar("R")

# A fenced writer never begins a transaction under the epoch that fenced it, so its time-out never runs.
FENCE_TIMEOUT_S = 60.0


class MemoryAdmin:
    """The `Admin` port in memory."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._topics = client.broker.topics

    async def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """Number of partitions of each topic that exists."""
        infos = await self._describe("admin.partitions", topics)
        return {name: info.partitions for name, info in infos.items()}

    async def list_topics(self) -> list[str]:
        """Names of all topics, sorted, without those that are named like Kafka's own."""
        names = await self._client.ask_judged("admin.list_topics", self._topics.names)
        return [name for name in names if not name.startswith("__")]

    async def describe(self, topics: Iterable[str]) -> dict[str, TopicInfo]:
        """Partitions, replication and settings of each topic that exists."""
        return await self._describe("admin.describe", topics)

    async def create(self, topics: Sequence[TopicSpec]) -> None:
        """Create topics; one that exists already is left as it is."""

        def apply() -> None:
            for spec in topics:
                self._topics.create(spec)
            self._client.broker.moved.fire()

        await self._client.ask_judged("admin.create", apply)

    async def configure(self, topic: str, config: Mapping[str, str]) -> None:
        """Set configuration entries of an existing topic."""
        await self._client.ask_judged("admin.configure", lambda: self._topics.topic(topic).configure(config))

    async def add_partitions(self, topic: str, partitions: int) -> None:
        """Raise the number of partitions of a topic."""
        await self._client.ask_judged("admin.add_partitions", lambda: self._topics.grow(topic, partitions))

    async def delete(self, topics: Iterable[str]) -> None:
        """Delete topics; one that does not exist is fine."""
        names = list(topics)

        def apply() -> None:
            self._topics.delete(names)
            self._client.broker.groups.forget_topics(names)
            self._client.broker.moved.fire()

        await self._client.ask_judged("admin.delete", apply)

    async def start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The first offset that is still there."""
        return await self._offsets("admin.start_offsets", partitions, lambda each: each.start_offset)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, int]:
        """The offset after the last record, or the first offset of the oldest open transaction."""
        return await self._offsets(
            "admin.end_offsets",
            partitions,
            lambda each: each.stable_offset if committed else each.end_offset,
        )

    async def offsets_for_time(
        self, partitions: Iterable[TopicPartition], timestamp_ms: int
    ) -> dict[TopicPartition, int]:
        """First offset whose timestamp is at or after this time, else the end."""
        return await self._offsets(
            "admin.offsets_for_time", partitions, lambda each: each.offset_for_time(timestamp_ms)
        )

    async def positions(
        self, group: str, partitions: Iterable[TopicPartition], *, timeout_s: float
    ) -> dict[TopicPartition, Position]:
        """The group's committed positions; waits while a transaction holds one of them pending."""
        wanted = list(partitions)
        found = self._client.broker.groups.group(group)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s

        def read() -> dict[TopicPartition, Position] | None:
            if any(found.is_pending(each) for each in wanted):
                return None
            known = ((each, found.positions[each]) for each in wanted if each in found.positions)
            return {each: at if isinstance(at, Position) else Position(at) for each, at in known}

        while True:
            positions = await self._client.ask_judged("admin.positions", read)
            if positions is not None:
                return positions
            remaining_s = deadline - loop.time()
            if remaining_s <= 0:
                raise Retry("a position is still held by an open transaction", where=group)
            if read() is None:
                await wait_any(found.changed, timeout_s=remaining_s)

    async def reset_positions(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Set positions of a group without members."""
        await self._client.ask_judged(
            "admin.reset_positions", lambda: self._client.broker.groups.reset(group, positions)
        )

    async def members(self, group: str) -> list[ShownMember]:
        """Member ids of a group, with what each is known for; empty if there is no such group."""
        return await self._client.ask_judged("admin.members", self._client.broker.groups.group(group).shown)

    async def fence(self, writer_id: str) -> None:
        """End whatever transaction this writer has open and refuse its epoch."""
        transactions = self._client.broker.transactions
        await self._client.ask_judged("admin.fence", lambda: transactions.init(writer_id, FENCE_TIMEOUT_S))

    async def close(self) -> None:
        """Nothing to release."""

    async def _describe(self, what: str, topics: Iterable[str]) -> dict[str, TopicInfo]:
        names = list(topics)

        def read() -> dict[str, TopicInfo]:
            found = [self._topics.find(name) for name in names]
            return {topic.name: topic.info() for topic in found if topic is not None}

        return await self._client.ask_judged(what, read)

    async def _offsets(
        self, what: str, partitions: Iterable[TopicPartition], offset: Callable[[MemoryPartition], int]
    ) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        return await self._client.ask_judged(
            what, lambda: {each: offset(self._topics.partition(each)) for each in wanted}
        )
