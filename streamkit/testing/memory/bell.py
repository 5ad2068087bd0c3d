"""Waking whoever waits for a change, without the broker knowing about event loops."""

import asyncio
from collections.abc import Callable


class Bell:
    """Something that happens again and again; those who wait for it are woken once, in the order they came."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        # A dict, because it can be left in any order and is walked in the order of arrival.
        self._waiting: dict[Callable[[], None], None] = {}

    def add(self, wake: Callable[[], None]) -> None:
        """Call this once when it happens next."""
        self._waiting[wake] = None

    def discard(self, wake: Callable[[], None]) -> None:
        """Do not call this any more."""
        self._waiting.pop(wake, None)

    def fire(self) -> None:
        """It happened."""
        if self._waiting:
            waiting, self._waiting = self._waiting, {}
            for wake in waiting:
                wake()


async def wait_any(*signals: Bell, timeout_s: float | None = None) -> None:
    """Wait until one of the signals fires or the time is over; None waits for ever."""
    loop = asyncio.get_running_loop()
    future = loop.create_future()

    def wake() -> None:
        if not future.done():
            future.set_result(None)

    for signal in signals:
        signal.add(wake)
    timer = None if timeout_s is None else loop.call_later(timeout_s, wake)
    try:
        await future
    finally:
        for signal in signals:
            signal.discard(wake)
        if timer is not None:
            timer.cancel()
