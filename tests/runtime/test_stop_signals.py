import asyncio
import os
import signal

import pytest

from streamkit.runtime.stop_signals import stop_signals, unless_asked


async def test_who_cannot_end_cleanly_in_time_ends_at_once() -> None:
    said: list[str] = []
    ended = asyncio.Event()

    def kill() -> None:
        said.append("kill")
        ended.set()

    with stop_signals(lambda: said.append("stop"), kill, limit_s=0.05):
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(ended.wait(), 5)
    assert said == ["stop", "kill"]


async def test_who_ends_in_time_is_left_alone() -> None:
    said: list[str] = []
    asked = asyncio.Event()
    with stop_signals(asked.set, lambda: said.append("kill"), limit_s=0.05):
        os.kill(os.getpid(), signal.SIGTERM)
        await asked.wait()
    await asyncio.sleep(0.1)
    assert said == []


async def test_work_is_ended_when_we_are_asked_to_stop_meanwhile():
    asked, ended = asyncio.Event(), []

    async def work():
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    asyncio.get_running_loop().call_later(0.01, asked.set)
    assert await unless_asked(asked, work()) is None
    assert ended == [True]


async def test_what_comes_of_work_is_handed_on_and_so_is_its_error():
    async def work(number):
        return 12 // number

    assert await unless_asked(asyncio.Event(), work(3)) == 4
    with pytest.raises(ZeroDivisionError):
        await unless_asked(asyncio.Event(), work(0))
