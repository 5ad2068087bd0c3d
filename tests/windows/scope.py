"""A window step in a task, with a watermark and a wall clock that are moved by hand."""

from collections import Counter
from typing import Any

from streamkit.operators.step import MAIN, Fire, Push, Step, Timers
from streamkit.progress.task_clock import TaskClock
from streamkit.state.spec import StoreSpec
from streamkit.windows.late import LATE
from tests.operators.scope import Pushed, StepScope

# Timers that fire in one go; tests have few.
AT_ONCE = 1_000


class Punctual:
    """Timers that nobody sets for a time that has come."""

    def __init__(self, timers: Timers, clock: TaskClock, *, is_event: bool) -> None:
        self._timers = timers
        self._clock = clock
        self._is_event = is_event
        self.remove = timers.remove

    @property
    def now(self) -> int:
        return self._timers.now

    def add(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        # A timer that is due when a record sets it would fire at some later record, and nobody knows at which.
        assert self._clock.is_firing or not self._is_event or time > self.now
        self._timers.add(key, time, namespace)


class WindowScope(StepScope):
    """A scope whose time passes."""

    @property
    def watermark(self) -> int:
        return self.clock.watermark

    @property
    def counts(self) -> Counter[str]:
        return self.clock.counts

    def timers(self, spec: StoreSpec, fire: Fire) -> Timers:
        assert spec.kind in ("event_timers", "processing_timers")
        assert fire.__name__ == "fire"
        return Punctual(super().timers(spec, fire), self.clock, is_event=spec.kind == "event_timers")

    def advance(self, watermark: int) -> None:
        """Event time passes, and with its end the clock on the wall does not matter any more."""
        self.source.promise(watermark)
        self.fire_due()

    def pass_time(self, wall_ms: int) -> None:
        self.wall_ms = max(self.wall_ms, wall_ms)
        self.fire_due()

    def fire_due(self) -> None:
        while not self.clock.advance(AT_ONCE):
            pass
        while not self.clock.fire_processing(self.wall_ms, AT_ONCE):
            pass

    def evict(self) -> None:
        """Leave nothing in the caches but what the open span has changed."""
        for cache in self.state.caches():
            cache.evict()


class Task:
    """One step in a scope, what came out of it, and whatever it takes to go on after a restart."""

    def __init__(self, step: Step, *, hears_late: bool = False) -> None:
        self.step = step
        self.out: list[Pushed] = []
        # What left by the port of late records, if somebody listens there.
        self.sent_late: list[Pushed] = []
        self._hears_late = hears_late
        self.late = 0
        self._start(WindowScope(step))

    def _start(self, scope: WindowScope) -> None:
        def collect(key: bytes | None, value: Any, timestamp: int) -> None:
            self.out.append((key, value, timestamp))

        def collect_late(key: bytes | None, value: Any, timestamp: int) -> None:
            self.sent_late.append((key, value, timestamp))

        self.scope = scope
        late = {LATE: collect_late} if self._hears_late else {}
        self._push: Push = self.step.bind({MAIN: collect, **late}, scope)[MAIN]

    def push(self, key: bytes | None, value: Any, timestamp: int) -> None:
        """A record, and what it makes due: timers fire before the next one comes."""
        self._push(key, value, timestamp)
        self.scope.fire_due()

    def advance(self, watermark: int) -> None:
        self.scope.advance(watermark)

    def pass_time(self, wall_ms: int) -> None:
        self.scope.pass_time(wall_ms)

    def restart(self) -> None:
        """Commit, crash, and go on from the rows."""
        self.scope.end_span()
        self.late += self.scope.counts["late_records"]
        restarted = self.scope.restarted()
        assert isinstance(restarted, WindowScope)
        self._start(restarted)

    @property
    def late_records(self) -> int:
        return self.late + self.scope.counts["late_records"]

    @property
    def rows(self) -> dict[bytes, bytes]:
        """What is left when everything is committed."""
        self.scope.end_span()
        return self.scope.rows()
