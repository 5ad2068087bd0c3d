"""A broker whose controller has not heard of it in time: it answers every client, and counts itself as gone."""

import asyncio
import uuid
from collections.abc import Iterator

import pytest

from streamkit.config import Security
from streamkit.errors import BrokerUnreachable
from streamkit.kafka.admin import KafkaAdmin
from streamkit.kafka.connection import Connection
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.broker import Broker, start_broker
from streamkit.testing.broker.settings import FENCED_NOW_AND_THEN

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def flapping() -> Iterator[Broker]:
    with start_broker(extra=FENCED_NOW_AND_THEN) as broker:
        yield broker


async def test_every_change_waits_until_the_broker_is_up_again(flapping: Broker) -> None:
    async def change() -> None:
        connection = Connection(flapping.bootstrap, Security())
        await connection.connect()
        admin = KafkaAdmin(connection)
        topic = uuid.uuid4().hex
        await admin.create([TopicSpec(topic, 1)])
        await admin.add_partitions(topic, 2)
        await admin.configure(topic, {"retention.ms": "1000"})
        described = (await admin.describe([topic]))[topic]
        assert (described.partitions, described.config) == (2, {"retention.ms": "1000"})
        await admin.delete([topic])
        assert await admin.partitions([topic]) == {}
        await connection.close()

    # One after the other, for several sessions, so that each of the steps meets each of the moments.
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < 10:
        await change()


async def test_a_cluster_without_a_broker_that_is_up_is_a_retry_with_a_reason(
    flapping: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Connection, "nodes", lambda _self: [])
    connection = Connection(flapping.bootstrap, Security(), request_timeout_s=1.0)
    with pytest.raises(BrokerUnreachable, match="no broker of its cluster is up"):
        await connection.connect()
