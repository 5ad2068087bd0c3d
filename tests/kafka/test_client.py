"""The client under us, where it differs from aiokafka's own."""

import asyncio
import uuid
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NodeNotReadyError

from streamkit.config import Security
from streamkit.kafka.client import Client
from streamkit.kafka.connection import Connection, Purpose
from streamkit.testing.broker import Broker, start_broker


@pytest.fixture(scope="module")
def generous() -> Iterator[Broker]:
    """A broker that creates what it is asked for, which is Kafka's default."""
    with start_broker(extra={"auto.create.topics.enable": "true"}) as broker:
        yield broker


@pytest.mark.kafka
async def test_asking_for_a_topic_does_not_create_it(generous: Broker) -> None:
    connection = Connection(generous.bootstrap, Security())
    await connection.connect()
    topic = uuid.uuid4().hex
    await connection.watch({topic})
    await connection.refresh()
    await asyncio.sleep(0.5)
    await connection.refresh()
    assert connection.partition_count(topic) is None
    await connection.close()


class Update:
    """Takes the place of a broker's answer."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []

    async def send(self, request: Any) -> Any:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def connected(self) -> bool:
        return True


def client_of(connections: dict[int, Any], monkeypatch: pytest.MonkeyPatch) -> Client:
    client = Client(bootstrap_servers="127.0.0.1:9")

    async def get(_self: Client, node_id: int, **_how: Any) -> Any:
        return connections[node_id]

    monkeypatch.setattr(Client, "_get_conn", get)
    brokers = [SimpleNamespace(nodeId=node) for node in connections]
    monkeypatch.setattr(client.cluster, "brokers", lambda: brokers)
    return client


async def test_updates_go_on_after_a_transport_that_was_closed_a_moment_ago(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = SimpleNamespace(brokers=[1])
    seen: list[Any] = []
    node = Update(RuntimeError("the handler is closed"), told, SimpleNamespace(brokers=[]))
    client = client_of({1: node}, monkeypatch)
    metadata = SimpleNamespace(update_metadata=seen.append, failed_update=seen.append)
    assert [await client._metadata_update(metadata, ["t"]) for _ in range(3)] == [False, True, False]
    assert seen == [None, told]  # the last one knew no broker that is up


async def test_an_update_that_is_asked_for_during_another_follows_it_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client(bootstrap_servers="127.0.0.1:9", metadata_max_age_ms=50)
    entered, go_on, updates = asyncio.Event(), asyncio.Event(), []

    async def update(_self: Client, _cluster: Any, topics: set[str]) -> bool:
        updates.append(set(topics))
        entered.set()
        await go_on.wait()
        return True

    monkeypatch.setattr(Client, "_metadata_update", update)
    client._sync_task = asyncio.create_task(client._md_synchronizer())
    await entered.wait()  # by its age
    client._metadata_max_age_ms = 300_000
    watching = asyncio.ensure_future(client.set_topics({"t"}))
    await asyncio.sleep(0.01)
    go_on.set()
    assert await asyncio.wait_for(watching, 5) is True
    assert updates == [set(), {"t"}]
    client._sync_task.cancel()


async def test_a_broker_that_stalls_holds_up_no_connection_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def connect(self: AIOKafkaClient, node_id: int, **_how: Any) -> Any:
        async with self._get_conn_lock:
            if node_id == 1:
                await asyncio.Event().wait()

    monkeypatch.setattr(AIOKafkaClient, "_get_conn", connect)
    client = Client(bootstrap_servers="127.0.0.1:9")
    stalled = asyncio.create_task(client._get_conn(1, group=Purpose.FETCH))
    await asyncio.sleep(0)
    assert await asyncio.wait_for(client._get_conn(2, group=Purpose.FETCH), 5) is None
    stalled.cancel()


async def test_a_connection_that_has_just_ended_is_not_handed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = SimpleNamespace(connected=lambda: False)
    client = client_of({1: ended}, monkeypatch)
    with pytest.raises(NodeNotReadyError):
        await client.connect(1, Purpose.FETCH)
