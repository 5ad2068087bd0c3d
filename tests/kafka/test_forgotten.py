"""Transactions that a real broker forgot to end: they are ended as they were decided, wherever something is open.

The broker of these tests does not ask its coordinator before it takes a transaction's records. So records and positions
can be put where the coordinator has never heard of them, which is just how a forgotten transaction looks from outside.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from streamkit.config import Security
from streamkit.errors import Fenced, Retry, WriterDead
from streamkit.kafka.connection import Purpose
from streamkit.kafka.log import KafkaLog
from streamkit.kafka.ports import WriterOptions
from streamkit.kafka.produce_calls import produce
from streamkit.kafka.transaction_calls import txn_offset_commit
from streamkit.kafka.transaction_port import PASSING, TransactionState
from streamkit.kafka.transactions import positions_partition
from streamkit.kafka.wire import compact_string
from streamkit.kafka.writer import KafkaWriter
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.runtime import retire as retire_module
from streamkit.runtime.retire import Note, Retirement
from streamkit.testing.broker import Broker, start_broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

OLD_PRODUCE = 11  # newer ones add the partition to the transaction by themselves
OLD_POSITIONS = 3
NOBODY = Member("", "", -1)
BOTH = pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with start_broker(extra={"transaction.partition.verification.enable": "false"}) as running:
        if running.kind == "external":
            pytest.fail("these tests need a broker with settings of their own: unset STREAMKIT_BROKERS")
        yield running


class Scene:
    """A pipeline's group and topics, and a writer of it."""

    def __init__(self, broker: Broker, log: KafkaLog) -> None:
        self.broker = broker
        self.log = log
        self.name = f"forgotten-{uuid.uuid4().hex[:8]}"
        self.outputs = [TopicPartition(f"{self.name}-out", number) for number in range(3)]
        self.input = TopicPartition(f"{self.name}-in", 0)
        self.retirement = self.another_retirement()

    def another_retirement(self) -> Retirement:
        return Retirement(self.log, self.name, self.outputs, [self.input])

    async def set_up(self) -> None:
        topics = [TopicSpec(self.outputs[0].topic, 3), TopicSpec(self.input.topic, 1)]
        await self.log.admin().create(topics)
        await self.log._connection.watch({topic.name for topic in topics})
        await self.log.admin().reset_positions(self.name, {self.input: 5})

    async def writer(self, life: str = "w.1") -> KafkaWriter:
        writer = self.log.writer(WriterOptions(f"{self.name}.{life}", Guarantee.EXACTLY_ONCE))
        await writer.open(f"{self.name}.{life}.1")
        return writer

    def commit(self, writer: KafkaWriter, value: bytes, number: int = 0) -> Commit:
        batch = writer.batch()
        batch.append(0, 0, b"k", value, [])
        return Commit([OutBatch(self.outputs[number], batch, 1)], {}, NOBODY)

    async def decide(self, writer: KafkaWriter, *, commit: bool) -> None:
        """Let the coordinator's last word on this writer be this."""
        transactions = self.log.transactions()
        if commit:
            await writer.commit(self.commit(writer, b"elsewhere", 2))
        else:
            identity = writer._delivery.sequences.identity
            await transactions.end(writer.writer_id, identity, commit=False)
        for _ in range(500):  # until its markers are all there
            if (await transactions.last(writer.writer_id)).state not in PASSING:
                return
            await asyncio.sleep(0.01)
        pytest.fail("the transaction did not come to its end")

    async def forget(self, writer: KafkaWriter, *places: TopicPartition) -> None:
        """Leave a record open on each of these, behind the coordinator's back."""
        for place in places:
            batch = writer.batch()
            batch.append(0, 0, b"k", b"forgotten", [])
            content = writer._delivery.sequences.stamp(OutBatch(place, batch, 1))
            leader = self.log._connection.leader(place)
            assert leader is not None
            call = produce(OLD_PRODUCE, writer.writer_id, 5000, [(place, content)])
            (ack,) = await self.log._connection.send(leader, call, Purpose.PRODUCE)
            assert ack.code == 0, ack

    async def forget_positions(self, writer: KafkaWriter, offset: int) -> None:
        """Leave a position pending, behind the coordinator's back."""
        identity = writer._delivery.sequences.identity
        member = Member(self.name, "", -1)
        call = txn_offset_commit(
            OLD_POSITIONS, compact_string(writer.writer_id), identity, member, {self.input: offset}
        )
        node = await self.log._connection.coordinator(Purpose.GROUP, self.name)
        assert (await self.log._connection.send(node, call, Purpose.GROUP)).codes == (0,)

    async def held(self) -> set[int]:
        """The partitions on which readers wait."""
        stable = await self.log.admin().end_offsets(self.outputs, committed=True)
        ends = await self.log.admin().end_offsets(self.outputs, committed=False)
        return {at.partition for at in self.outputs if stable[at] < ends[at]}

    async def position(self) -> int:
        """The group's position, once nothing is pending."""
        return (await self.log.admin().positions(self.name, [self.input], timeout_s=1.0))[self.input]

    def seen(self, number: int) -> list[bytes | None]:
        """What another client reads of a partition, committed records only."""
        settings = {"bootstrap.servers": self.broker.bootstrap, "group.id": uuid.uuid4().hex}
        settings |= {"isolation.level": "read_committed", "enable.auto.commit": False}
        consumer = Consumer(settings | {"enable.partition.eof": True})
        consumer.assign([Place(self.outputs[number].topic, number, 0)])
        found = []
        while True:
            message = consumer.poll(20)
            assert message is not None
            if message.error() is not None:
                break
            found.append(message.value())
        consumer.close()
        return found


@pytest.fixture
async def scene(broker: Broker) -> AsyncIterator[Scene]:
    log = KafkaLog(broker.bootstrap, Security())
    await log.connect()
    made = Scene(broker, log)
    await made.set_up()
    yield made
    await log.close()


@BOTH
async def test_what_was_forgotten_is_ended_as_it_was_decided(scene: Scene, commit: bool) -> None:
    writer = await scene.writer()
    await scene.decide(writer, commit=commit)
    await scene.forget(writer, scene.outputs[0], scene.outputs[1])
    assert await scene.held() == {0, 1}

    await scene.retirement.retire(writer.writer_id)

    assert await scene.held() == set()
    assert scene.seen(0) == scene.seen(1) == ([b"forgotten"] if commit else [])


@BOTH
async def test_positions_that_were_forgotten_are_ended_as_it_was_decided(scene: Scene, commit: bool) -> None:
    writer = await scene.writer()
    await scene.decide(writer, commit=commit)
    await scene.forget_positions(writer, 9)
    with pytest.raises(Retry):
        await scene.position()

    await scene.retirement.retire(writer.writer_id)

    assert await scene.position() == (9 if commit else 5)


async def test_what_is_going_on_is_aborted(scene: Scene) -> None:
    writer = await scene.writer()
    await scene.decide(writer, commit=True)
    call = scene.commit(writer, b"never", 0)
    await writer._delivery.send(call.all_batches)  # and no end
    assert (await scene.log.transactions().last(writer.writer_id)).state is TransactionState.ONGOING

    await scene.retirement.retire(writer.writer_id)

    assert await scene.held() == set()
    assert scene.seen(0) == []
    assert scene.seen(2) == [b"elsewhere"]


async def test_who_is_retired_can_never_commit_again(scene: Scene) -> None:
    writer = await scene.writer()
    await writer.commit(scene.commit(writer, b"1"))
    await scene.retirement.retire(writer.writer_id)
    with pytest.raises((Fenced, WriterDead)):
        await writer.commit(scene.commit(writer, b"2"))
    assert scene.seen(0) == [b"1"]


@BOTH
async def test_several_who_retire_one_writer_agree(scene: Scene, commit: bool) -> None:
    writer = await scene.writer()
    await scene.decide(writer, commit=commit)
    await scene.forget(writer, *scene.outputs)
    await scene.forget_positions(writer, 9)
    await asyncio.gather(*(scene.another_retirement().retire(writer.writer_id) for _ in range(5)))
    assert await scene.held() == set()
    assert scene.seen(0) == ([b"forgotten"] if commit else [])
    assert await scene.position() == (9 if commit else 5)


@pytest.mark.parametrize("is_fenced", [True, False], ids=["fenced", "not fenced"])
async def test_who_finds_a_note_goes_on_with_it(
    scene: Scene, is_fenced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody died after he had begun the transaction that ends what was left open; or the holder went on before that."""
    monkeypatch.setattr(retire_module, "HELPER_S", 0.1)
    writer = await scene.writer()
    await scene.decide(writer, commit=False)  # which the note must outweigh: it is older
    await scene.forget(writer, scene.outputs[0])
    for each in Note if is_fenced else [Note.COMMITTED]:
        await scene.log.admin().fence(f"{writer.writer_id}.{each.value}")
    transactions = scene.log.transactions()
    last = await transactions.last(writer.writer_id)
    assert last is not None
    writer._delivery.sequences.begin(last.producer)
    batch = scene.commit(writer, b"begun", 1)
    await writer._delivery.send(batch.all_batches)
    assert (await transactions.last(writer.writer_id)).state is TransactionState.ONGOING

    await scene.retirement.retire(writer.writer_id)

    assert await scene.held() == set()
    assert scene.seen(0) == [b"forgotten"]
    assert scene.seen(1) == (
        [b"begun"] if is_fenced else []
    )  # nobody but a helper can have begun it behind the fence


async def test_the_dead_are_found_without_a_name(scene: Scene) -> None:
    dead, living = await scene.writer("dead"), await scene.writer("living")
    for writer in (dead, living):
        await scene.forget(writer, scene.outputs[0] if writer is dead else scene.outputs[1])
    await scene.retirement.sweep(lambda: frozenset({f"{scene.name}.living"}))
    assert await scene.held() == {1}


async def test_a_writer_that_nobody_has_heard_of_has_left_nothing(scene: Scene) -> None:
    await scene.retirement.retire(f"{scene.name}.never.1")
    assert await scene.log.transactions().known(scene.name) == set()


# What Java's String.hashCode gives: 99162322, the smallest number there is, and a negative one.
@pytest.mark.parametrize(
    ("group", "partition"), [("hello", 22), ("polygenelubricants", 0), ("", 0), ("World!", 33)]
)
def test_where_kafka_keeps_the_positions_of_a_group(group: str, partition: int) -> None:
    assert positions_partition(group, 50) == partition
