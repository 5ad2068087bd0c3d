"""What a real Kafka does not take: every reason for which it refuses a batch, known before or found by smaller spans."""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, Message, TopicPartition

import streamkit as sk
from streamkit.config import Security, Settings
from streamkit.errors import Misconfigured
from streamkit.kafka.log import KafkaLog
from streamkit.kafka.ports import Admin
from streamkit.runtime.assemble import assemble
from streamkit.runtime.disk import DiskThread
from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.output_topics import OutputTopics
from streamkit.runtime.persist import Storage
from streamkit.state.budget import MemoryBudget
from streamkit.state.memory import MemoryStores
from streamkit.testing.broker import Broker
from streamkit.testing.harness import HarnessWorker
from tests.kafka.auditor import create_topic, producer

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

DAY_MS = 86_400_000


class Copy:
    """A pipeline that copies text from one topic to another, and what is known of it."""

    def __init__(self, broker: Broker, **config: str) -> None:
        self.bootstrap = broker.bootstrap
        self.source = create_topic(broker.bootstrap)
        self.sink = create_topic(broker.bootstrap, **config)
        self.name = f"copy-{uuid.uuid4().hex[:8]}"
        self.admin: Admin
        self.loop: WorkerLoop
        self.work: asyncio.Task[None]

    def send(self, *values: str, key: str | None = "k", **options: Any) -> None:
        client = producer(self.bootstrap, **{"message.max.bytes": "5000000"})
        for value in values:
            client.produce(self.source, value.encode(), key=key, **options)
        assert client.flush(20) == 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Copy"]:
        pipeline = sk.pipeline(self.name)
        pipeline.read(sk.topic(self.source, str)).map(grown).write(sk.topic(self.sink, str))
        log = KafkaLog(self.bootstrap, Security(), request_timeout_s=10.0)
        await log.connect()
        self.admin = log.admin()
        settings = Settings(store="memory", transaction_timeout_s=4.0, restart_delay_first_s=0.1)
        try:
            storage = Storage(MemoryStores(), DiskThread(), MemoryBudget(1 << 20))
            self.loop = await assemble(pipeline.plan(), settings, log, storage, HarnessWorker(0))
            self.work = asyncio.create_task(self.loop.run())
            yield self
            if not self.work.done():
                self.loop.stop()
                await self.work
        finally:
            self.work.cancel()
            await asyncio.wait([self.work])
            await log.close()

    async def copied(self, count: int) -> list[str]:
        return [(record.value() or b"").decode() for record in await self._read(self.sink, count)]

    async def letters(self, count: int) -> list[Message]:
        return await self._read(f"{self.name}.dead-letters", count)

    async def _read(self, topic: str, count: int) -> list[Message]:
        """So many committed records, by a client that is not ours; fails if there are more."""
        return await asyncio.to_thread(self._consume, topic, count)

    def _consume(self, topic: str, count: int) -> list[Message]:
        settings = {"bootstrap.servers": self.bootstrap, "group.id": uuid.uuid4().hex}
        consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, 0, 0)])
        found = []
        while len(found) < count:
            record = consumer.poll(60.0)
            assert record is not None, f"{topic} has only {len(found)} records"
            assert record.error() is None
            found.append(record)
        assert consumer.poll(0.5) is None
        consumer.close()
        return found


def grown(text: str) -> str:
    """Texts of the form "x 2000" become as long as they say."""
    letter, _, length = text.partition(" ")
    return letter * int(length) if length else text


def error_of(letter: Message) -> str:
    return dict(letter.headers())["streamkit.error"].decode()


async def test_a_record_without_a_key_for_a_compacted_topic(kafka_broker: Broker) -> None:
    async with Copy(kafka_broker, cleanup_policy="compact").running() as copy:
        copy.send("a")
        copy.send("nobody's", key=None)
        copy.send("b", key="other")
        assert await copy.copied(2) == ["a", "b"]
        (letter,) = await copy.letters(1)
    assert letter.value() == b"nobody's"
    assert "which is compacted" in error_of(letter)


async def test_a_record_beyond_the_limit_of_the_broker(kafka_broker: Broker) -> None:
    async with Copy(kafka_broker).running() as copy:
        copy.send("a", "x 1048000", "y 1200000", "b")
        assert [len(text) for text in await copy.copied(3)] == [1, 1_048_000, 1]
        (letter,) = await copy.letters(1)
    assert letter.value() == b"y 1200000"
    assert "larger than topic" in error_of(letter)


async def test_a_record_may_be_as_large_as_its_topic_allows(kafka_broker: Broker) -> None:
    async with Copy(kafka_broker, max_message_bytes="5000000").running() as copy:
        copy.send("a", "x 3000000", "b")
        assert [len(text) for text in await copy.copied(3)] == [1, 3_000_000, 1]


async def test_timestamps_outside_the_bounds_of_a_topic(kafka_broker: Broker) -> None:
    bounds = {"message_timestamp_before_max_ms": str(DAY_MS), "message_timestamp_after_max_ms": "600000"}
    copy = Copy(kafka_broker, **bounds)
    now = time.time_ns() // 1_000_000
    async with copy.running():
        copy.send("now", timestamp=now)
        copy.send("old", timestamp=now - 3 * DAY_MS)
        copy.send("ahead", timestamp=now + 3_000_000)
        assert await copy.copied(2) == ["now", "ahead"]
        (letter,) = await copy.letters(1)
    assert "older than topic" in error_of(letter)
    headers = dict(letter.headers())
    assert headers["streamkit.timestamp"] == b"%d" % (now - 3 * DAY_MS)
    # The broker's own time: by that of the record it would be deleted soon.
    kind, stamped = letter.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert stamped >= now


async def test_limits_that_are_lowered_while_the_worker_runs(kafka_broker: Broker) -> None:
    async with Copy(kafka_broker).running() as copy:
        copy.send("a")
        await copy.copied(1)
        await copy.admin.configure(copy.sink, {"max.message.bytes": "5000"})
        copy.send(*["x 2000"] * 50, "y 6000", "b")
        assert [len(text) for text in await copy.copied(52)] == [1, *[2000] * 50, 1]
        (letter,) = await copy.letters(1)
    assert letter.value() == b"y 6000"


async def test_what_no_setting_tells_is_found_by_smaller_spans(
    kafka_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def blind(_self: OutputTopics) -> bool:
        return False

    monkeypatch.setattr(OutputTopics, "look_again", blind)
    async with Copy(kafka_broker).running() as copy:
        copy.send("a")
        await copy.copied(1)
        await copy.admin.configure(copy.sink, {"cleanup.policy": "compact"})
        texts = [f"text-{number}" for number in range(400)]
        for number, text in enumerate(texts):
            copy.send(text, key=None if number in (123, 300) else text)
        good = [text for text in texts if text not in ("text-123", "text-300")]
        assert await copy.copied(399) == ["a", *good]
        letters = await copy.letters(2)
    assert [letter.value() for letter in letters] == [b"text-123", b"text-300"]
    assert all(dict(letter.headers())["streamkit.step"] == b"commit" for letter in letters)
    assert "INVALID_RECORD" in error_of(letters[0])


async def test_an_output_topic_that_was_deleted_ends_with_a_person(kafka_broker: Broker) -> None:
    async with Copy(kafka_broker).running() as copy:
        copy.send("a")
        await copy.copied(1)
        await copy.admin.delete([copy.sink])
        copy.send("b")
        with pytest.raises(Misconfigured, match=f'topic "{copy.sink}" does not exist any more'):
            await copy.work


async def test_an_input_topic_that_was_deleted_ends_with_a_person(kafka_broker: Broker) -> None:
    async with Copy(kafka_broker).running() as copy:
        copy.send("a")
        await copy.copied(1)
        await copy.admin.delete([copy.source])
        with pytest.raises(Misconfigured, match=f'topic "{copy.source}" does not exist') as ended:
            await copy.work
        assert "`streamkit topics apply --execute`" in ended.value.hint
