import asyncio
import os
import signal

from streamkit.runtime.stop_signals import stop_signals


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
