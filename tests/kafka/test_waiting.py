# ruff: noqa: ARG002 - what these brokers are asked does not matter
"""What is tried again although brokers answer: told once it lasts, then more seldom, and as an error in the end."""

import asyncio
import contextlib
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import GroupCoordinatorNotAvailableError, NodeNotReadyError
from structlog.testing import capture_logs

from streamkit.kafka.admin import KafkaAdmin
from streamkit.kafka.error_codes import ErrorCode
from streamkit.kafka.fetch_calls import Fetched
from streamkit.kafka.group_calls import Joined
from streamkit.kafka.membership import KafkaMembership
from streamkit.kafka.ports import MemberOptions, StageTasks
from streamkit.kafka.reader import KafkaReader
from streamkit.model.ids import TopicPartition
from streamkit.testing.virtual_time import run

HALF_AN_HOUR_S = 1800
# Told after 30 s, then with pauses that double up to five minutes.
LINES_MAX = 12
VIEWS = TopicPartition("views", 0)


class Brokers:
    """They answer at once, but not as one would wish."""

    def __init__(self) -> None:
        self.asked = 0
        self._lanes = 100

    def new_lane(self) -> int:
        self._lanes += 1
        return self._lanes

    def another(self) -> "Brokers":
        return self

    def drop(self, lane: int) -> None:
        pass


class NoCoordinator(Brokers):
    async def coordinator(self, lane: int, name: str) -> int:
        self.asked += 1
        raise GroupCoordinatorNotAvailableError


class EndlessRounds(Brokers):
    async def coordinator(self, lane: int, name: str) -> int:
        return 1

    async def send(self, node: int, call: object, lane: int) -> Joined:
        self.asked += 1
        return Joined(ErrorCode.REBALANCE_IN_PROGRESS, 0, "", "", {})


class Unreadable(Brokers):
    """Of one partition: it has no leader, or its leader cannot read its disk."""

    def __init__(self, node: int | None) -> None:
        super().__init__()
        self._node = node

    async def watch(self, topics: object) -> None:
        pass

    async def refresh(self) -> bool:
        self.asked += 1
        return True

    def leader(self, at: object) -> int | None:
        return self._node

    def is_forbidden(self, topic: str) -> bool:
        return False

    def partition_count(self, topic: str) -> int:
        return 1

    async def send(self, node: int, call: object, lane: int) -> list[Fetched]:
        self.asked += 1
        await asyncio.sleep(0.01)
        return [Fetched("views", 0, ErrorCode.KAFKA_STORAGE_ERROR, [], memoryview(b""))]


def require_told(logs: Sequence[Any]) -> None:
    assert 1 < len(logs) <= LINES_MAX
    assert [logs[0]["log_level"], logs[-1]["log_level"]] == ["warning", "error"]


@pytest.mark.parametrize("brokers", [NoCoordinator, EndlessRounds])
def test_a_group_that_takes_nobody_in_is_told(brokers: type[Brokers]) -> None:
    cluster = brokers()

    async def join() -> None:
        member = KafkaMembership(cluster, MemberOptions("g", "g.1", (StageTasks("s", 1),)))  # type: ignore[arg-type]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(HALF_AN_HOUR_S):
                await member.join([])

    with capture_logs() as logs:
        run(join(), 0, steps_max=10_000_000)
    require_told(logs)
    assert cluster.asked < 3 * HALF_AN_HOUR_S


@pytest.mark.parametrize("node", [None, 1], ids=["no leader", "storage error"])
def test_a_partition_that_cannot_be_read_is_told(node: int | None) -> None:
    async def read() -> None:
        reader = KafkaReader(Unreadable(node), committed=True)  # type: ignore[arg-type]
        reader.seek(VIEWS, 0)
        for _ in range(HALF_AN_HOUR_S):
            assert await reader.poll(1.0) == []
        await reader.close()

    with capture_logs() as logs:
        run(read(), 0, steps_max=10_000_000)
    require_told(logs)


class Away(Brokers):
    """Their clients know the leaders, and none of them can be connected to at the moment."""

    async def watch(self, topics: object) -> None:
        pass

    async def refresh(self) -> bool:
        self.asked += 1
        return False

    def leader(self, at: object) -> int | None:
        return 1

    async def send(self, node: int, call: object, lane: int) -> Any:
        self.asked += 1
        raise NodeNotReadyError


def test_partitions_of_brokers_that_are_away_keep_their_pauses_whenever_others_are_lost() -> None:
    cluster, partitions = Away(), 4

    async def read() -> None:
        reader = KafkaReader(cluster, committed=True)  # type: ignore[arg-type]
        for number in range(partitions):
            reader.seek(TopicPartition("views", number), 0)
            await reader.poll(0.03)  # each is lost at a time of its own
        for _ in range(60):
            assert await reader.poll(1.0) == []
        await reader.close()

    run(read(), 0, steps_max=100_000)
    assert 30 < cluster.asked < 60 * partitions * 3


def test_a_topic_that_one_broker_has_not_heard_of_yet_is_asked_for_again() -> None:
    """A broker that has just started, and is asked first."""
    known = [
        SimpleNamespace(name="views", code=0, partitions=[SimpleNamespace(number=0, leader=1)]),
        SimpleNamespace(name="views", code=3, partitions=[]),
    ]

    class Cluster(Brokers):
        def any_node(self) -> int:
            return 1

        async def send(self, node: int, call: object, lane: int) -> Any:
            self.asked += 1
            if self.asked > 3:
                return [(VIEWS, 0, 42)]
            return SimpleNamespace(topics=[known[self.asked == 1]], nodes=[1], controller=1)

    admin = KafkaAdmin(Cluster())  # type: ignore[arg-type]
    assert run(admin.end_offsets([VIEWS], committed=False), 0) == {VIEWS: 42}
