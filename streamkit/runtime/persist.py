"""persist: committed state goes to disk, while the loop goes on.

    open, copy   a task that arrives: its store is opened, and filled from the changelog by `runtime/restore.py`
    apply        committed rows go into the store at least every `state_apply_interval_s`
    flush        the stores' own memory goes into files every `state_flush_interval_s`: the tail of the changelog that a
                 process leaves to its successor when it is killed is about this long
    close        a task that leaves: what is committed goes first

All of it is done by one thread, in order (`runtime/disk.py`). Rows that wait for it can be read, and take memory: when they
are too many the worker takes no records until the disk has caught up.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import chain
from typing import Any, TypeVar

import msgspec
import structlog

from streamkit.config import Settings
from streamkit.errors import Misconfigured
from streamkit.runtime.disk import Disk
from streamkit.state.budget import Cache, MemoryBudget, keep_within
from streamkit.state.store import StateStore, StateStores
from streamkit.state.task_state import TaskState

R = TypeVar("R")

log = structlog.get_logger()

# How often to look whether something is due.
LOOK_S = 0.05
# A disk that does nothing for this long is worth a line in the log, and one that holds records up for this long.
SILENCE_S = 10.0
BEHIND_S = 1.0
# Longer than any piece of work lasts, a stalled write included: a worker whose disk hangs must not keep its tasks.
HUNG_S = 900.0
# Rows are written early when they fill this share of their memory: a disk that keeps up never holds records up.
EARLY_SHARE = 0.5


class Storage(msgspec.Struct, frozen=True):
    """Where a worker keeps its state, and how much of it in memory."""

    stores: StateStores
    disk: Disk
    budget: MemoryBudget


class Persistence:
    """The state of a worker's tasks on its way to disk."""

    def __init__(self, storage: Storage, settings: Settings) -> None:
        self._stores = storage.stores
        self._disk = storage.disk
        self._flush_interval_s = settings.state_flush_interval_s
        self._patience_s = settings.drain_timeout_s
        self._budget = storage.budget
        self._look_at = float("-inf")
        self._weigh_at = float("-inf")
        # When the oldest rows were applied that are in no file yet, by task.
        self._unflushed: dict[TaskState, float] = {}
        self._is_flushing = False
        self._failures: list[tuple[TaskState, BaseException]] = []
        # Pieces of work that were asked for and not done yet, and when one was last done or the first one asked for.
        self._asked = 0
        self._heard_at = 0.0
        self._is_silent = False
        self._silent_since_s = 0.0
        self._progress = asyncio.Event()
        self._is_hung = False
        self.is_full = False
        self._full_since_s = 0.0
        self._is_behind_said = False

    # Committed rows, down to files.

    def follow(self, states: Callable[[], Iterable[TaskState]]) -> None:
        """Begin what is due of these; ask as often as you like.

        Raises:
            StateCorrupt, Retry, Misconfigured: what the disk has said to an earlier write.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._look_at and not self.is_full and not self._failures:
            return
        self._look_at = now_s + LOOK_S
        for state, error in self._take_failures():
            if not state.is_closed:
                raise error
        self._mind_the_silence(now_s)
        found = list(states())
        waiting_bytes = sum(state.committed_rows.waiting_bytes for state in found)
        self._mind_the_room(waiting_bytes, now_s)
        is_early = waiting_bytes > self._budget.waiting_bytes * EARLY_SHARE
        for state in found:
            if is_early or state.committed_rows.write_due(now_s):
                self._write(state)
        self._flush(now_s)

    def keep_within_memory(self, states: Iterable[TaskState], others: Iterable[Cache]) -> None:
        """Empty what these tasks and others have cached, the largest first, if all together is too much.

        Ask as often as you like: it is looked at now and then.
        """
        now_s = asyncio.get_running_loop().time()
        if now_s < self._weigh_at:
            return
        self._weigh_at = now_s + LOOK_S
        cached = (cache for state in states for cache in state.caches())
        keep_within(self._budget.cached_bytes, chain(others, cached))

    async def wait_for_room(self, timeout_s: float) -> None:
        """Wait until the disk has done something, or this long."""
        self._progress.clear()
        try:
            async with asyncio.timeout(timeout_s):
                await self._progress.wait()
        except TimeoutError:
            pass

    def _mind_the_room(self, waiting_bytes: int, now_s: float) -> None:
        was_full, self.is_full = self.is_full, waiting_bytes > self._budget.waiting_bytes
        if not self.is_full:
            if self._is_behind_said:
                log.info("the disk has caught up", bytes=waiting_bytes)
            self._is_behind_said = False
        elif not was_full:
            self._full_since_s = now_s
        elif now_s - self._full_since_s > BEHIND_S and not self._is_behind_said:
            self._is_behind_said = True
            log.warning("the disk is behind: no records are taken until it catches up", bytes=waiting_bytes)

    def _mind_the_silence(self, now_s: float) -> None:
        if self._asked and not self._is_silent and now_s - self._heard_at > SILENCE_S:
            self._is_silent, self._silent_since_s = True, now_s
            log.warning("the disk has not answered for a while", seconds=SILENCE_S, work=self._asked)
        # From when that was said on: a process that stood still is not its disk's fault.
        if self._asked and self._is_silent and now_s - self._silent_since_s > HUNG_S:
            raise Misconfigured(
                "the disk does not answer",
                detail=f"for {HUNG_S:g} s; nothing is lost: the changelog has what is committed",
                hint="look at the disk of state_dir, or let state_dir name another one; others take the tasks meanwhile",
            )

    def _write(self, state: TaskState) -> None:
        work = state.committed_rows.begin_write()
        if work is not None:
            self._ask(work).add_done_callback(partial(self._wrote, state))

    def _wrote(self, state: TaskState, future: "asyncio.Future[None]") -> None:
        if self._went_well(state, future) and not state.is_closed:
            state.committed_rows.written()
            self._unflushed.setdefault(state, asyncio.get_running_loop().time())

    def _flush(self, now_s: float) -> None:
        """Flush the store that has waited longest, if it is due; one at a time, for writes wait behind it."""
        if self._is_flushing or not self._unflushed:
            return
        state, since_s = next(iter(self._unflushed.items()))
        if now_s - since_s >= self._flush_interval_s:
            del self._unflushed[state]
            self._is_flushing = True
            self._ask(state.store.flush).add_done_callback(partial(self._flushed, state))

    def _flushed(self, state: TaskState, future: "asyncio.Future[None]") -> None:
        self._is_flushing = False
        self._went_well(state, future)

    def _went_well(self, state: TaskState, future: "asyncio.Future[None]") -> bool:
        if future.cancelled():
            return False
        error = future.exception()
        if error is not None:
            self._failures.append((state, error))
        return error is None

    def _take_failures(self) -> list[tuple[TaskState, BaseException]]:
        failures, self._failures = self._failures, []
        return failures

    # Stores come and go.

    async def open(self, name: str, *, beside: bool = True) -> StateStore:
        """The store of a task; see `StateStores.open`."""
        opened: list[StateStore] = []

        def work() -> StateStore:
            opened.append(self._stores.open(name, beside=beside))
            return opened[0]

        try:
            return await self.run(work)
        except asyncio.CancelledError:
            self.do(partial(_close_all, opened))
            raise

    def discard(self, name: str) -> None:
        """Remove the stored state of a closed task, so that the next `open` begins empty."""
        self.do(partial(self._stores.discard, name))

    def close(self, state: TaskState) -> None:
        """Give the state of a task up; what is committed goes to disk, behind what is on its way there."""
        state.drop()
        state.is_closed = True
        self._unflushed.pop(state, None)
        self.do(state.close)

    async def run(self, work: Callable[[], R]) -> R:
        """Have something done by the disk."""
        return await self._ask(work)

    def do(self, work: Callable[[], Any]) -> None:
        """Have something done by the disk, without waiting for it; `settle` waits for all of it."""
        self._ask(work).add_done_callback(_log_failure)

    async def settle(self) -> None:
        """Wait until all that was asked for is done, but not for ever: a disk that hangs must not hang us."""
        behind_it = self._ask(lambda: None)
        done, _ = await asyncio.wait([behind_it], timeout=0.0 if self._is_hung else self._patience_s)
        if not done and not self._is_hung:
            self._is_hung = True
            log.error("the disk does not answer: state is left as it is", waited_s=self._patience_s)

    async def end(self) -> None:
        """The worker ends: release the stores and the disk."""
        self.do(self._stores.close)
        await self.settle()
        self._disk.close()

    def _ask(self, work: Callable[[], R]) -> "asyncio.Future[R]":
        if self._asked == 0:
            self._heard_at = asyncio.get_running_loop().time()
        self._asked += 1
        future = self._disk.run(work)
        future.add_done_callback(self._answered)
        return future

    def _answered(self, future: "asyncio.Future[Any]") -> None:
        self._asked -= 1
        if not future.cancelled():
            self._heard_at = asyncio.get_running_loop().time()
            self._is_hung = self._is_silent = False
            self._progress.set()


def _close_all(stores: Iterable[StateStore]) -> None:
    for store in stores:
        store.close()


def _log_failure(future: "asyncio.Future[Any]") -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        log.warning("work on local state failed", error=str(error))
