"""A disk in virtual time: its work is done on the event loop, a while later, one piece after the other."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from streamkit.runtime.disk import settle

R = TypeVar("R")


class VirtualDisk:
    """A `Disk` without a thread; `delay_s` says how long the next piece of work takes."""

    def __init__(self, delay_s: Callable[[], float] = lambda: 0.0) -> None:
        self._delay_s = delay_s
        self._jobs: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()

    def run(self, work: Callable[[], R]) -> "asyncio.Future[R]":
        """Have it done a while later."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._jobs.append((work, future))
        if len(self._jobs) == 1:
            loop.call_later(self._delay_s(), self._do, loop)
        return future

    @property
    def is_busy(self) -> bool:
        """Whether there is work that was not done yet."""
        return bool(self._jobs)

    def close(self) -> None:
        """Nothing to end."""

    def _do(self, loop: asyncio.AbstractEventLoop) -> None:
        work, future = self._jobs.popleft()
        try:
            settle(future, work(), None)
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
            settle(future, None, error)
        if self._jobs:
            loop.call_later(self._delay_s(), self._do, loop)
