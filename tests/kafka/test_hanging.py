"""Transactions that a real broker does not know of on a partition, and therefore never ends there: until we do.

The broker of these tests does not ask its coordinator before it takes a transaction's records. So records can be put
where the coordinator has never heard of them, which is just how a forgotten transaction looks from outside.
"""

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Place

from streamkit.config import Security
from streamkit.kafka.connection import Lane
from streamkit.kafka.log import KafkaLog
from streamkit.kafka.ports import Guarantee, OutBatch, TopicSpec, WriterOptions
from streamkit.kafka.produce_calls import produce
from streamkit.kafka.writer import KafkaWriter
from streamkit.model.ids import TopicPartition
from streamkit.runtime.hanging import end_hanging
from streamkit.testing.broker import Broker, start_broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]

OLD_PRODUCE = 11  # newer ones add the partition to the transaction by themselves


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with start_broker(extra={"transaction.partition.verification.enable": "false"}) as running:
        if running.kind == "external":
            pytest.fail("these tests need a broker with settings of their own: unset STREAMKIT_BROKERS")
        yield running


@pytest.fixture
async def log(broker: Broker) -> AsyncIterator[KafkaLog]:
    made = KafkaLog(broker.bootstrap, Security())
    await made.connect()
    yield made
    await made.close()


async def hang(log: KafkaLog, writer: KafkaWriter, partition: TopicPartition, value: bytes) -> None:
    """Leave a record of an open transaction on a partition behind the coordinator's back."""
    batch = writer.batch()
    batch.append(0, 0, b"k", value, [])
    content = writer._delivery.sequences.stamp(OutBatch(partition, batch, 1))
    leader = log._connection.leader(partition)
    assert leader is not None
    call = produce(OLD_PRODUCE, writer.writer_id, 5000, [(partition, content)])
    (ack,) = await log._connection.send(leader, call, Lane.PRODUCE)
    assert ack.code == 0, ack


@pytest.mark.parametrize("commit", [True, False])
async def test_what_the_broker_forgot_is_ended_as_it_was_decided(
    broker: Broker, log: KafkaLog, commit: bool
) -> None:
    admin = log.admin()
    partition = TopicPartition(f"hanging-{uuid.uuid4().hex[:8]}", 0)
    await admin.create([TopicSpec(partition.topic, 1)])
    await log._connection.watch({partition.topic})
    options = WriterOptions(f"forgotten-{uuid.uuid4().hex[:8]}", Guarantee.EXACTLY_ONCE)
    writer = log.writer(options)
    assert isinstance(writer, KafkaWriter)
    await writer.open()
    await hang(log, writer, partition, b"hanging")
    await admin.fence(options.writer_id)  # the coordinator has nothing to end
    stuck = await admin.end_offsets([partition], committed=True)
    assert stuck == {partition: 0}

    await end_hanging(log, "nobody-in-it", partition, options.writer_id, commit=commit)

    await admin.fence(options.writer_id)  # a barrier: markers are written behind the answer
    stable = await admin.end_offsets([partition], committed=True)
    assert stable == await admin.end_offsets([partition], committed=False)
    assert stable[partition] > 1
    assert seen_by_another_client(broker.bootstrap, partition, stable[partition]) == (
        [b"hanging", None] if commit else []
    )


def seen_by_another_client(bootstrap: str, partition: TopicPartition, end: int) -> list[bytes | None]:
    """What confluent-kafka reads of a partition, committed records only."""
    settings = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": False})
    place = Place(partition.topic, partition.partition, 0)
    consumer.assign([place])
    found = []
    while True:
        message = consumer.poll(20)
        assert message is not None
        if message.error() is not None:
            break
        found.append(message.value())
    assert consumer.position([place])[0].offset == end
    consumer.close()
    return found
