"""The watch over a worker in virtual time: what its thread does in life (`runtime/watch.py`)."""

import asyncio

from streamkit.runtime.watch import Watch
from streamkit.runtime.whereabouts import Whereabouts
from streamkit.testing.virtual_time import VirtualLoop, in_process


async def watched(watch: Watch, process: str) -> None:
    """Look after the code of a process, until it is cancelled; returns if its event loop does not come back."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    context = in_process(process)

    def find() -> Whereabouts | None:
        found: Whereabouts | None = loop.doing(process)
        return found

    while watch.look(loop.time(), find, lambda: loop.call_soon(watch.answer, context=context)):  # noqa: ASYNC110
        await asyncio.sleep(watch.look_s)
