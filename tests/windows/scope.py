"""A task for window steps: real cells and timers over a dict of rows, a watermark and a wall clock moved by hand."""

from collections import Counter
from itertools import islice
from typing import Any

from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.operators.fused import named
from streamkit.operators.step import MAIN, Fire, Push, Step
from streamkit.state.spec import StoreSpec
from streamkit.state.timers import TimerCells
from streamkit.windows.late import LATE
from tests.operators.scope import FakeScope, Pushed, Rows


class TimedRows(Rows):
    """Rows that can be walked in order, as timers are."""

    def find_keys(self, prefix: bytes, start: bytes, count: int) -> list[bytes]:
        found = (key for key in sorted(self) if key >= start and key.startswith(prefix))
        return list(islice(found, count))


class ScopeTimers:
    """The timers of one step, as `streamkit.operators.step.Timers` promises them."""

    def __init__(self, cells: TimerCells, fire: Fire, scope: "WindowScope", *, is_event: bool) -> None:
        self.cells = cells
        self.fire = fire
        self.is_event = is_event
        self._scope = scope

    @property
    def now(self) -> int:
        return self._scope.watermark if self.is_event else self._scope.wall_ms

    def add(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        # A timer that is due when a record sets it would fire at some later record, and nobody knows at which.
        assert self._scope.is_firing or not self.is_event or time > self.now
        self.cells.add(key, time, namespace)

    def remove(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        self.cells.remove(key, time, namespace)


class WindowScope(FakeScope):
    """A FakeScope that knows windows and time. Hand its rows, watermark and clock to another one: a restart."""

    def __init__(self, rows: TimedRows | None = None, watermark: int = MIN_TIME, wall_ms: int = 0) -> None:
        self.timed_rows = TimedRows() if rows is None else rows
        super().__init__(rows=self.timed_rows)
        self.watermark = watermark
        self.wall_ms = wall_ms
        self.counts: Counter[str] = Counter()
        self.all_timers: list[ScopeTimers] = []
        self.is_firing = False

    def restarted(self) -> "WindowScope":
        """What a new task finds: the rows that were committed, and time where it stood."""
        return WindowScope(self.timed_rows, self.watermark, self.wall_ms)

    def timers(self, spec: StoreSpec, fire: Fire) -> ScopeTimers:
        assert spec.kind in ("event_timers", "processing_timers")
        assert fire.__name__ == "fire"
        cells: TimerCells = self.cells(spec)
        made = ScopeTimers(cells, named(fire), self, is_event=spec.kind == "event_timers")
        self.all_timers.insert(0, made)
        return made

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def advance(self, watermark: int) -> None:
        """Event time passes, and with its end the clock on the wall does not matter any more."""
        self.watermark = max(self.watermark, watermark)
        self.fire_due()

    def pass_time(self, wall_ms: int) -> None:
        self.wall_ms = max(self.wall_ms, wall_ms)
        self.fire_due()

    def fire_due(self) -> None:
        for timers in self.all_timers:
            if timers.is_event or self.watermark == MAX_TIME:
                self._fire(timers, self.watermark)
            else:
                self._fire(timers, self.wall_ms)

    def _fire(self, timers: ScopeTimers, up_to: int) -> None:
        self.is_firing = True
        while (timer := timers.cells.pop_due(up_to)) is not None:
            timers.fire(*timer)
        self.is_firing = False

    def evict(self) -> None:
        """Leave nothing in the caches but what the open span has changed."""
        for cells in self._cells.values():
            cells.evict()


class Task:
    """One step in a scope, what came out of it, and whatever it takes to go on after a restart."""

    def __init__(self, step: Step, scope: WindowScope | None = None, *, hears_late: bool = False) -> None:
        self.step = step
        self.out: list[Pushed] = []
        # What left by the port of late records, if somebody listens there.
        self.sent_late: list[Pushed] = []
        self._hears_late = hears_late
        self.late = 0
        self._start(scope or WindowScope())

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
        self._start(self.scope.restarted())

    @property
    def late_records(self) -> int:
        return self.late + self.scope.counts["late_records"]

    @property
    def rows(self) -> dict[bytes, bytes]:
        """What is left when everything is committed."""
        self.scope.end_span()
        return dict(self.scope.timed_rows)
