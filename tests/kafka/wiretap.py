"""A real cluster with a hand on the wire: tests see every request, and may lose, delay or answer it themselves."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import confluent_kafka as other
import pytest
from aiokafka.errors import KafkaConnectionError

from streamkit.config import Security
from streamkit.kafka.admin import KafkaAdmin
from streamkit.kafka.connection import Connection, Purpose
from streamkit.kafka.membership import KafkaMembership
from streamkit.kafka.ports import MemberOptions, StageTasks, WriterOptions
from streamkit.kafka.produce_calls import Ack
from streamkit.kafka.transaction_calls import Reply, api_versions
from streamkit.kafka.transactions import KafkaTransactions
from streamkit.kafka.wire import Call, Fields
from streamkit.kafka.writer import KafkaWriter
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec

Forward = Callable[[], Awaitable[Any]]
Rule = Callable[[Call[Any], Forward], Awaitable[Any]]


class Wire(Connection):
    """A connection that asks `rules`, by API key, what to do with a request; what was sent is in `seen`."""

    def __init__(self, brokers: str) -> None:
        super().__init__(brokers, Security(), request_timeout_s=10.0)
        self.rules: dict[int, Rule] = {}
        self.seen: list[Call[Any]] = []

    async def send(self, node: int, call: Call[Any], lane: Purpose) -> Any:
        self.seen.append(call)
        forward = partial(super().send, node, call, lane)
        rule = self.rules.get(call.key)
        return await (forward() if rule is None else rule(call, forward))

    def sent(self) -> list[int]:
        return [call.key for call in self.seen]


def first(count: int, rule: Rule) -> Rule:
    """This rule for the first requests, none for the rest."""
    left = [count]

    async def limited(call: Call[Any], forward: Forward) -> Any:
        left[0] -= 1
        return await (rule(call, forward) if left[0] >= 0 else forward())

    return limited


async def lost_request(_call: Call[Any], _forward: Forward) -> Any:
    raise KafkaConnectionError("cut before it was sent")


async def lost_answer(_call: Call[Any], forward: Forward) -> Any:
    await forward()
    raise KafkaConnectionError("cut after it was sent")


async def never(_call: Call[Any], _forward: Forward) -> Any:
    await asyncio.Event().wait()


def answers(code: int) -> Rule:
    """The broker never sees it; every partition gets this code."""

    async def answer(call: Call[Any], _forward: Forward) -> Any:
        if call.key == 0:
            return [Ack(partition, code, -1, "") for partition in produced(call)]
        return Reply((code,))

    return answer


def answers_after(code: int) -> Rule:
    """The broker does it, but we hear this code."""

    async def answer(call: Call[Any], forward: Forward) -> Any:
        done = await forward()
        if call.key == 0:
            return [ack._replace(code=code) for ack in done]
        return done._replace(codes=(code,))

    return answer


class Hold:
    """A rule that stops a request, before or after it was sent, until the test lets it go."""

    def __init__(self, *, sent: bool = False) -> None:
        self.sent = sent
        self.reached = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, _call: Call[Any], forward: Forward) -> Any:
        if self.sent:
            answer = await forward()
            self.reached.set()
            await self.go.wait()
            return answer
        self.reached.set()
        await self.go.wait()
        return await forward()


def produced(call: Call[Any]) -> list[TopicPartition]:
    """The partitions of a Produce request."""
    fields = Fields(call.body)
    fields.compact_string()
    fields.take(6)
    partitions = []
    for _ in range(fields.compact_count()):
        topic = fields.compact_string() or ""
        for _ in range(fields.compact_count()):
            partitions.append(TopicPartition(topic, fields.int32()))
            fields.compact_bytes()
            fields.tags()
        fields.tags()
    return partitions


class Site:
    """One test's topics, group, wire and writers."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"wire-{uuid.uuid4().hex[:10]}"
        self.wire = Wire(bootstrap)
        self.admin = KafkaAdmin(self.wire)
        self.member: Member
        self._membership: KafkaMembership

    def to(self, partition: int) -> TopicPartition:
        return TopicPartition(f"{self.name}-out", partition)

    def source(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(f"{self.name}-in", partition)

    async def open(self, out_config: Mapping[str, str]) -> None:
        await self.wire.connect()
        await self.admin.create(
            [TopicSpec(f"{self.name}-out", 4, None, out_config), TopicSpec(f"{self.name}-in", 4)]
        )
        options = MemberOptions(f"{self.name}-group", "w", (StageTasks("one", 1),))
        self._membership = KafkaMembership(self.wire, options)
        await self.rejoin()

    async def require_version_2(self) -> None:
        abilities = await self.wire.send(self.wire.any_node(), api_versions(), Purpose.METADATA)
        if abilities.transaction_version < 2:
            # Only a cluster that somebody gave us may be older; the one we start ourselves must have it.
            assert "STREAMKIT_BROKERS" in os.environ, "our own broker has no transaction version 2"
            pytest.skip("the given cluster's transaction.version is below 2")

    async def rejoin(self) -> None:
        """A new generation of the group."""
        self.member = (await self._membership.join(())).member

    async def close(self) -> None:
        self.wire.rules.clear()
        await self._membership.close()
        await self.wire.close()

    def writer(
        self,
        *,
        version: int | None = None,
        guarantee: Guarantee = Guarantee.EXACTLY_ONCE,
        transaction_timeout_s: float = 20.0,
        writer_id: str = "w",
    ) -> KafkaWriter:
        options = WriterOptions(f"{self.name}-{writer_id}", guarantee, transaction_timeout_s)
        return KafkaWriter(self.wire, options, transaction_version=version)

    def commit(
        self, writer: KafkaWriter, values: Mapping[int, list[bytes]], position: int | None = None
    ) -> Commit:
        """One batch per partition, and the position of the first source partition."""
        batches = [self.batch(writer, partition, part) for partition, part in values.items()]
        positions = {} if position is None else {self.source(): position}
        return Commit(batches, positions, self.member)

    def batch(self, writer: KafkaWriter, partition: int, values: list[bytes]) -> OutBatch:
        batch = writer.batch()
        for index, value in enumerate(values):
            assert batch.append(index, 1_700_000_000_000, b"k", value, [("h", b"1")]) is not None
        return OutBatch(self.to(partition), batch, len(values))

    async def position(self) -> int | None:
        found = await self.admin.positions(self.member.group, [self.source()], timeout_s=10)
        return found.get(self.source())

    async def visible(self, *, fence: str | None = "w") -> dict[int, list[bytes]]:
        """What a client that is not ours reads as committed, by partition; the epochs of the writer's ids end first."""
        self.wire.rules.clear()
        if fence is not None:
            for writer_id in await KafkaTransactions(self.wire).known(f"{self.name}-{fence}"):
                await self.admin.fence(writer_id)
        return await asyncio.to_thread(self._read)

    def _read(self) -> dict[int, list[bytes]]:
        consumer = other.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"{self.name}-auditor",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        topic = self.to(0).topic
        consumer.assign([other.TopicPartition(topic, number, 0) for number in range(4)])
        found: dict[int, list[bytes]] = {}
        ended: set[int] = set()
        while len(ended) < 4:
            message = consumer.poll(10)
            assert message is not None, "the auditor heard nothing"
            if message.error() is None:
                found.setdefault(message.partition(), []).append(message.value())
            else:
                assert message.error().code() == other.KafkaError._PARTITION_EOF
                ended.add(message.partition())
        consumer.close()
        return found


@asynccontextmanager
async def site_on(bootstrap: str, out_config: Mapping[str, str] | None = None) -> AsyncIterator[Site]:
    site = Site(bootstrap)
    await site.open(out_config or {})
    try:
        yield site
    finally:
        await site.close()
