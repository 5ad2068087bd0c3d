import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import NodeNotReadyError
from structlog.testing import capture_logs

from streamkit.config import Security
from streamkit.kafka import client as under_test
from streamkit.kafka.client import Client
from streamkit.kafka.connection import Connection
from streamkit.kafka.reconnects import PAUSE_FIRST_S, PAUSE_LAST_S, SPREAD, Reconnects

MINUTE_S = 60.0


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def attempts(reconnects: Reconnects, clock: Clock, seconds: float) -> list[float]:
    """When a broker that stays away is tried, by somebody who asks all the time."""
    tried = []
    until_s = clock.now_s + seconds
    while clock.now_s < until_s:
        if reconnects.is_due(1):
            tried.append(clock.now_s)
            reconnects.failed(1)
        clock.now_s += 0.001
    return tried


def test_pauses_grow_to_about_a_second() -> None:
    clock = Clock()
    tried = attempts(Reconnects(clock), clock, MINUTE_S)
    pauses = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert pauses[0] <= PAUSE_FIRST_S * (1 + SPREAD) + 0.002
    assert pauses[-1] >= PAUSE_LAST_S * (1 - SPREAD)
    assert len(tried) <= MINUTE_S / (PAUSE_LAST_S * (1 - SPREAD)) + 5


def test_a_broker_that_came_back_is_tried_at_once_the_next_time() -> None:
    clock = Clock()
    reconnects = Reconnects(clock)
    attempts(reconnects, clock, MINUTE_S)
    reconnects.succeeded(1)
    assert reconnects.is_due(1)
    reconnects.failed(1)
    clock.now_s += PAUSE_FIRST_S * (1 + SPREAD)
    assert reconnects.is_due(1)


def test_others_are_not_kept_waiting() -> None:
    reconnects = Reconnects(Clock())
    reconnects.failed(1)
    assert not reconnects.is_due(1)
    assert reconnects.is_due(2)


def test_attempts_at_the_same_time_count_as_one() -> None:
    clock = Clock()
    reconnects = Reconnects(clock)
    for _ in range(20):
        reconnects.failed(1)
    clock.now_s += PAUSE_FIRST_S * (1 + SPREAD)
    assert reconnects.is_due(1)


async def test_all_lanes_together_try_a_broker_that_is_away_once_per_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, tried = Clock(), []
    up = False

    async def connect(_self: AIOKafkaClient, node_id: int, **how: int) -> object | None:
        tried.append((node_id, how["group"]))
        return SimpleNamespace(connected=lambda: True) if up else None

    monkeypatch.setattr(AIOKafkaClient, "_get_conn", connect)
    monkeypatch.setattr(under_test, "receive_whole", lambda _connection: None)
    client = Client(bootstrap_servers="127.0.0.1:9")
    client._reconnects = Reconnects(clock)
    while clock.now_s < 100.0 + MINUTE_S:
        for lane in range(8):
            with pytest.raises(NodeNotReadyError):
                await client.connect(1, lane)
        clock.now_s += 0.05
        await asyncio.sleep(0)
    assert len(tried) <= MINUTE_S / (PAUSE_LAST_S * (1 - SPREAD)) + 5
    up = True
    clock.now_s += PAUSE_LAST_S * (1 + SPREAD)
    for lane in range(8):
        assert await client.connect(1, lane)


async def test_connections_of_one_worker_tell_of_an_outage_once_and_share_their_pauses() -> None:
    """Heartbeats have a connection of their own, on another event loop."""
    first = Connection("127.0.0.1:9", Security())
    second = first.another()
    with capture_logs() as logs:
        first._outage.failed("no connection")
        second._outage.failed("no connection")
        second._outage.over()
        first._outage.over()
    assert [each["event"] for each in logs] == [
        "no broker answers: trying again until one does",
        "a broker answers again",
    ]
    first._reconnects.failed(1)
    assert not second._reconnects.is_due(1)


async def test_a_connection_that_is_up_says_nothing_about_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that has changed, a broker that has no room: those that are in stay, and metadata is asked by them."""
    clock, tried = Clock(), []
    up = SimpleNamespace(connected=lambda: True)

    async def connect(self: AIOKafkaClient, node_id: int, **how: int) -> Any:
        group = how.get("group", 0)
        if (node_id, group) in self._conns:
            return self._conns[node_id, group]
        tried.append(clock.now_s)
        return None

    monkeypatch.setattr(AIOKafkaClient, "_get_conn", connect)
    monkeypatch.setattr(under_test, "receive_whole", lambda _connection: None)
    client = Client(bootstrap_servers="127.0.0.1:9")
    client._reconnects = Reconnects(clock)
    client._conns[1, 0] = up
    while clock.now_s < 100.0 + MINUTE_S:
        assert await client._get_conn(1) is up
        with pytest.raises(NodeNotReadyError):
            await client.connect(1, 7)
        clock.now_s += 0.05
    assert len(tried) <= MINUTE_S / (PAUSE_LAST_S * (1 - SPREAD)) + 5
