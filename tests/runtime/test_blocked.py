"""An output topic whose readers stand still is never silent, and what is ours there is ended."""

import asyncio
import itertools
from unittest.mock import patch

import pytest
import structlog

from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Guarantee
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.runtime.blocked import GRACE_S, LOOK_S, BlockedOutputs
from streamkit.testing.memory import MemoryBroker, MemoryLog
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.virtual_time import run

OUT = TopicPartition("out", 0)
TIMEOUT_S = 10.0
PATIENCE_S = TIMEOUT_S + GRACE_S


class Scene:
    def __init__(self) -> None:
        self.broker = MemoryBroker()
        self.log = MemoryLog(self.broker)
        self.sweeps = 0
        self.blocked = BlockedOutputs(self.log.admin(), [OUT], self.sweep, TIMEOUT_S)

    async def sweep(self) -> None:
        self.sweeps += 1

    async def set_up(self) -> None:
        await self.log.admin().create([TopicSpec("out", 1)])
        writer = self.log.writer(WriterOptions("somebody", Guarantee.EXACTLY_ONCE))
        await writer.open()

    def write(self) -> None:
        batch = MemoryBatch()
        batch.append(0, 0, b"k", b"v", [])
        self.broker.transactions.produce("somebody", 0, OUT, batch, 0.0)


def test_it_is_said_once_and_then_more_and_more_seldom():
    async def play() -> list[float]:
        scene = Scene()
        await scene.set_up()
        scene.write()
        said = []
        for second in range(0, 600, 5):
            with structlog.testing.capture_logs() as lines:
                await scene.blocked.look(float(second))
            if lines:
                said.append(float(second))
                assert lines[0]["log_level"] == "error"
                assert lines[0]["partition"] == "out[0]"
                assert "--topic out --partition 0 --start-offset 0" in lines[0]["hint"]
        assert scene.blocked.count == 1
        assert scene.sweeps == len(said)
        return said

    said = run(play(), 0)
    assert said[0] == PATIENCE_S
    pauses = [later - earlier for earlier, later in itertools.pairwise(said)]
    assert pauses == sorted(pauses)
    assert pauses[0] >= 2 * PATIENCE_S


def test_transactions_that_come_and_go_are_nothing_to_speak_of():
    async def play() -> None:
        scene = Scene()
        await scene.set_up()
        with structlog.testing.capture_logs() as lines:
            for number in range(20):
                scene.write()
                await scene.blocked.look(number * PATIENCE_S)
                await scene.log.admin().fence("somebody")
                scene.broker.transactions.state("somebody").epoch = 0
        assert lines == []
        assert scene.blocked.count == 0

    run(play(), 0)


def test_it_is_said_when_it_is_over():
    async def play() -> None:
        scene = Scene()
        await scene.set_up()
        scene.write()
        await scene.blocked.look(0.0)
        await scene.blocked.look(PATIENCE_S)
        await scene.log.admin().fence("somebody")
        with structlog.testing.capture_logs() as lines:
            await scene.blocked.look(PATIENCE_S + 1)
        assert [line["event"] for line in lines] == ["an output topic is not blocked any more"]
        assert scene.blocked.count == 0

    run(play(), 0)


@pytest.mark.parametrize("looks", [True, False])
def test_it_ends_with_the_worker(looks):
    async def play() -> None:
        scene = Scene()
        await scene.set_up()
        scene.write()
        asked = []
        with patch.object(scene.blocked, "look", lambda now_s: asked.append(now_s) or asyncio.sleep(60)):
            for second in range(20 if looks else 1):
                scene.blocked.follow(float(second))
        assert asked == ([LOOK_S] if looks else [])
        await scene.blocked.stop()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(play(), 0)
