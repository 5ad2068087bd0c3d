"""An event loop without real time: a seed decides who runs next, and the clock jumps when everybody waits.

The same seed gives the same run, to the letter, as long as the code under test asks the loop for the time, draws
from seeded randomness and does not walk over sets of strings (their order changes from process to process).

Code may say that it takes time, by `VirtualLoop.spend`. What runs in the same process (`in_process`) then waits for it, as
an event loop waits for code that blocks; all others go on.
"""

# ruff: noqa: SLF001 - a loop is written on the inner side of asyncio: handles, timers, the ready queue

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from random import Random
from typing import Any, TypeVar

R = TypeVar("R")

# What one step of an event loop costs in life, roughly. Above zero, so that code that spins without ever waiting
# still lets the clock move, and others' time-outs come.
STEP_S = 0.00001
# A run that takes more steps than this is spinning: they are two minutes of real time.
STEPS_MAX = 10_000_000
# What cancelled tasks get to clear up.
CLEARING_STEPS_MAX = 1_000_000
# Cancelled timers are swept out when there are this many, as asyncio does itself.
CANCELLED_TIMERS_MAX = 100


# Whose code runs. None: nobody's, and no work holds it up: the brokers, the network, threads beside an event loop.
_PROCESS: ContextVar[str | None] = ContextVar("process", default=None)


def in_process(name: str | None) -> Context:
    """A context for tasks and timers of this process."""
    context = copy_context()
    context.run(_PROCESS.set, name)
    return context


class Deadlock(Exception):
    """Nothing is ready and nothing is scheduled: whoever still waits would wait for ever."""


class Livelock(Exception):
    """The run took more steps than it may: somebody spins."""


class NumberedTask(asyncio.Task[Any]):
    """A task whose hash is its number, so that sets of tasks are walked in the same order in every process."""

    _number = 0

    def __hash__(self) -> int:
        return self._number


class Work:
    """A process whose code takes time: until when, on what, and what waits for it to be over."""

    def __init__(self, until: float, spent_on: list[tuple[float, Any]]) -> None:
        self.until = until
        self.spent_on = spent_on
        self.waiting: list[Any] = []


class VirtualLoop(asyncio.BaseEventLoop):
    """An event loop that runs one ready handle at a time, picked by the seed, on a clock of its own.

    `trace` is a number that two runs share only if they made the same choices at the same times.
    """

    # asyncio's own, which its type stubs leave out.
    _ready: deque[Any]
    _scheduled: list[Any]
    _timer_cancelled_count: int

    def __init__(self, seed: int, *, step_s: float = STEP_S, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self.random = Random(seed)  # noqa: S311 - it must be repeatable, not secret
        self.steps = 0
        self.trace = seed
        self._now = 0.0
        self._step_s = step_s
        self._steps_max = steps_max
        self._tasks_made = 0
        # What the code that runs now has spent, and on what: until when it was at each thing.
        self._spent_s = 0.0
        self._spent_on: list[tuple[float, Any]] = []
        # The processes that are at work.
        self._at_work: dict[str, Work] = {}
        # asyncio's own measure of a slow clock; ours is exact.
        self._clock_resolution = 0.0
        self.set_task_factory(self._make_task)

    def time(self) -> float:
        """Seconds since the loop was made, in virtual time."""
        return self._now + self._spent_s

    def spend(self, seconds: float, on: Any = None) -> None:
        """The code that runs now takes so long; `on` is what it is doing, for `doing`."""
        self._spent_s += seconds
        self._spent_on.append((self.time(), on))

    def doing(self, process: str) -> Any:
        """What a process is doing that is at work; None if it is not."""
        work = self._at_work.get(process)
        return next((what for until, what in work.spent_on if until > self._now), None) if work else None

    def _run_once(self) -> None:
        """One step: asyncio's `run_forever` calls this again and again."""
        ready = self._ready
        self._wake_due_timers(ready)
        while not ready:  # somebody's work is over, and nothing has waited for it
            self._wake_due_timers(ready)
        count = len(ready)
        at = int(self.random.random() * count) if count > 1 else 0
        if at:
            ready.rotate(-at)
            handle = ready.popleft()
            ready.rotate(at)
        else:
            handle = ready.popleft()
        if handle._cancelled or (self._at_work and self._waits(handle)):
            return
        self.steps += 1
        if self.steps > self._steps_max:
            ready.appendleft(handle)  # whoever is cancelled now still needs its turn
            raise Livelock(f"{self.steps} steps, and the clock stands at {self._now:.3f} s")
        self._now += self._step_s
        self.trace = hash((self.trace, at, count, self._now))
        handle._run()
        if self._spent_s:
            self._keep_at_work(handle._context.get(_PROCESS))

    def _keep_at_work(self, process: str | None) -> None:
        """Let the process that has just run stand still for as long as it has spent."""
        work = Work(self._now + self._spent_s, self._spent_on)
        self._spent_s, self._spent_on = 0.0, []
        if process is None:
            self._now = work.until
        else:
            self._at_work[process] = work

    def _waits(self, handle: Any) -> bool:
        """Put a handle off if its process is at work."""
        found = self._at_work.get(handle._context.get(_PROCESS))
        if found is not None:
            found.waiting.append(handle)
        return found is not None

    def _end_work(self, ready: deque[Any]) -> None:
        for process in [name for name, work in self._at_work.items() if work.until <= self._now]:
            ready.extend(self._at_work.pop(process).waiting)

    def _wake_due_timers(self, ready: deque[Any]) -> None:
        """Move what is due from the timers to the ready handles; jump the clock if nothing is ready."""
        timers = self._scheduled
        self._sweep_cancelled(timers)
        while timers and timers[0]._cancelled:
            heapq.heappop(timers)._scheduled = False
            self._timer_cancelled_count -= 1
        if not ready:
            times = [work.until for work in self._at_work.values()]
            if timers:
                times.append(timers[0]._when)
            if not times:
                raise Deadlock(f"at {self._now:.3f} s everybody waits and nothing is scheduled")
            self._now = max(self._now, min(times))
        if self._at_work:
            self._end_work(ready)
        while timers and timers[0]._when <= self._now:
            handle = heapq.heappop(timers)
            handle._scheduled = False
            if handle._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(handle)

    def _sweep_cancelled(self, timers: list[Any]) -> None:
        if self._timer_cancelled_count <= CANCELLED_TIMERS_MAX or self._timer_cancelled_count * 2 <= len(
            timers
        ):
            return
        kept = []
        for handle in timers:
            if handle._cancelled:
                handle._scheduled = False
            else:
                kept.append(handle)
        heapq.heapify(kept)
        timers[:] = kept
        self._timer_cancelled_count = 0

    def _process_events(self, event_list: Any) -> None:
        """There is no selector, so there are no events."""

    def _write_to_self(self) -> None:
        """There is no other thread to be woken by."""

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> "asyncio.Future[Any]":
        task = NumberedTask(coro, loop=loop, **options)
        self._tasks_made += 1
        task._number = self._tasks_made
        return task

    def run_in_executor(  # type: ignore[override]
        self,
        executor: Any,  # noqa: ARG002 - part of asyncio's signature
        func: Callable[..., R],
        *args: Any,
    ) -> "asyncio.Future[R]":
        """Run it here and now: a thread would bring its own order of things."""
        future: asyncio.Future[R] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it belongs to whoever awaits
            future.set_exception(error)
        return future

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109
        """There is no executor."""


def run(main: Coroutine[Any, Any, R], seed: int, *, steps_max: int = STEPS_MAX) -> R:
    """Run a coroutine to its end in virtual time, then cancel whatever it left running.

    Raises:
        Deadlock: everybody waits for ever.
        Livelock: somebody spins.
    """
    loop = VirtualLoop(seed, steps_max=steps_max)
    try:
        return loop.run_until_complete(main)
    finally:
        try:
            _cancel_rest(loop)
        finally:
            loop.close()


def _cancel_rest(loop: VirtualLoop) -> None:
    """Cancel every task and let it end; one that still waits then is abandoned without a word."""
    rest = sorted(asyncio.all_tasks(loop), key=hash)
    for task in rest:
        task.cancel()
    loop._steps_max = loop.steps + CLEARING_STEPS_MAX
    try:
        if rest:
            # No task of its own: one of them may end by cancelling whatever tasks it finds.
            loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    except (Deadlock, Livelock):
        for task in asyncio.all_tasks(loop):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
    for task in rest:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            loop.call_exception_handler(
                {"message": "a task failed while it was cancelled", "exception": error, "task": task}
            )
