"""disk: the one thread of a worker that opens, writes, flushes and closes state.

A disk may stand still for seconds, and RocksDB stalls writers on purpose; the event loop, and with it all
tasks of the worker, must not stand still with them. Work is done in the order in which it was given, so whoever closes a store and opens
it again need not wait in between. Reading stays on the loop.
"""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

R = TypeVar("R")

Job = tuple[Callable[[], Any], asyncio.AbstractEventLoop, "asyncio.Future[Any]"]


class Disk(Protocol):
    """Does work on state, one piece after the other."""

    def run(self, work: Callable[[], R]) -> "asyncio.Future[R]":
        """Have it done; the result comes by the future. Once asked for, it is done, whatever becomes of the future."""
        ...

    def close(self) -> None:
        """Do nothing any more once all that was asked for is done; does not wait for that."""
        ...


class DiskThread:
    """A Disk in a thread of its own, which begins with the first work.

    A daemon: a disk that never answers must not keep the process from ending.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], R]) -> "asyncio.Future[R]":
        """Have it done in the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._jobs.put((work, loop, future))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="streamkit-disk", daemon=True)
            self._thread.start()
        return future

    def close(self) -> None:
        """Let the thread end behind its last work."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            _do(*job)
            del job  # or it would hold a store until the next one comes


def _do(work: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: "asyncio.Future[Any]") -> None:
    outcome: Any = None
    failure: BaseException | None = None
    try:
        outcome = work()
    except BaseException as error:  # noqa: BLE001 - it belongs to whoever awaits
        failure = error
    with suppress(RuntimeError):  # the loop has ended: nobody waits
        loop.call_soon_threadsafe(settle, future, outcome, failure)


def settle(future: "asyncio.Future[Any]", outcome: Any, failure: BaseException | None) -> None:
    """Tell whoever still waits what became of a piece of work."""
    if future.done():
        return
    if failure is None:
        future.set_result(outcome)
    else:
        future.set_exception(failure)
