"""TaskClock: how far event time has come in one task, what holds it back, and which timers are due.

Its inputs are clocks of source partitions and channels of shuffles; its time is the least of them. When it advances, the
timers of the task's steps fire, those of the first step first, so that what it emits reaches the next step before that
step's own time advances. Firing may be interrupted and taken up again: `reached` says how far each step has come.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from streamkit.errors import is_of_the_record
from streamkit.model.ids import MAX_TIME, MIN_TIME
from streamkit.progress.channels import Channels, Status, combine
from streamkit.progress.pace import TURN_MS, Pace
from streamkit.progress.source_clock import SourceClock, SourceState
from streamkit.state.timers import StoredTimer, TimerCells

Fire = Callable[[bytes, int, bytes], None]
# Called with a timer that a person will look at instead of being fired; whether it is one.
SetAside = Callable[[str, StoredTimer], bool]


class Guard(Protocol):
    """Can undo what a record or a timer has done, if it fails (`task/careful.py`)."""

    def settle(self) -> None:
        """What was done up to here stays."""
        ...

    def undo(self) -> None:
        """Take back what was done since the last `settle`."""
        ...


class ClockMark(NamedTuple):
    """What one record or timer may change of a clock."""

    sources: dict[str, tuple[int, int, bytes]]
    counts: dict[str, int]


class ClockState(msgspec.Struct, frozen=True, array_like=True):
    """What is committed of a task's time: a restart goes on from here, and never goes back."""

    watermark: int = MIN_TIME
    # What every step has seen; less than the watermark while timers are firing.
    fired: int = MIN_TIME
    # Wall clock when the watermark last advanced.
    advanced_at_ms: int = 0
    sources: dict[str, SourceState] = {}
    # For each shuffle the watermarks and the statuses of its channels.
    channels: dict[str, tuple[list[int], list[int]]] = {}
    # What downstream was told last: status and event time.
    announced: tuple[int, int] = (Status.ACTIVE, MIN_TIME)
    # What the steps have counted, by name: late records, open windows.
    counts: dict[str, int] = {}


class TimerFailed(Exception):
    """A timer's step raised. With a guard all of it is undone, and the timer is there again."""

    def __init__(self, store: str, timer: StoredTimer, cause: BaseException) -> None:
        super().__init__(store)
        self.store = store
        self.timer = timer
        self.cause = cause


class StepTimers:
    """The timers of one step in one domain of time; keeps the promises of `Timers`."""

    def __init__(
        self, store: str, cells: TimerCells, fire: Fire, clock: "TaskClock", *, is_event: bool
    ) -> None:
        self.store = store
        self.cells = cells
        self.fire = fire
        self.is_event = is_event
        self.reached = clock.fired
        self._clock = clock

    @property
    def now(self) -> int:
        """Event time: what this step has reached. Processing time: the wall clock."""
        if not self.is_event:
            return self._clock.now_ms()
        return self.reached if self._clock.is_firing else self._clock.current()

    def add(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        """As `Timers.add`; at the end of all input a processing-time timer that renews itself is not set again."""
        if not self.is_event and self._clock.is_ringing_out:
            return
        self.cells.add(key, time, namespace)
        if self.is_event:
            self._clock.expect(time)

    def remove(self, key: bytes, time: int, namespace: bytes = b"") -> None:
        """As `Timers.remove`."""
        self.cells.remove(key, time, namespace)


class TaskClock:
    """Event time and timers of one task."""

    def __init__(
        self,
        state: ClockState,
        sources: Mapping[str, SourceClock],
        channels: Mapping[str, Channels],
        now_ms: Callable[[], int],
        elapsed_ms: Callable[[], int],
    ) -> None:
        """`now_ms` is processing time, `elapsed_ms` only measures how long something takes."""
        self.sources = sources
        self.channels = channels
        self.now_ms = now_ms
        self._elapsed_ms = elapsed_ms
        # How many timers fire before the next look at the clock, and when it says that it is enough for this turn.
        self.pace = Pace()
        self._turn_ends_ms = 0
        self.watermark = state.watermark
        self.fired = state.fired
        self.advanced_at_ms = state.advanced_at_ms or now_ms()
        self.announced = (Status(state.announced[0]), state.announced[1])
        # Until the first look. An end that downstream was told of is none that the first commit may take back.
        is_ended = self.announced[0] is Status.FINISHED
        self.status = Status.FINISHED if is_ended else Status.ACTIVE
        self.announced_at_ms = MIN_TIME
        self.is_firing = False
        # True while timers have to come one by one, each in a span of its own (`runtime/refusals.py`).
        self.is_single = False
        # True while the last timers of processing time fire, at the end of all input.
        self.is_ringing_out = False
        self.counts = Counter(state.counts)
        # Timers that have fired so far.
        self.fired_count = 0
        self._steps: list[StepTimers] = []
        self._event_steps: list[StepTimers] = []
        self._set_aside: SetAside = lambda _store, _timer: False
        # Only while timers are run carefully.
        self.guard: Guard | None = None
        self._tell_awake: Callable[[], None] = lambda: None
        for topic, (watermarks, statuses) in state.channels.items():
            _take_over(channels.get(topic), watermarks, statuses)

    def add_step(self, timers: StepTimers) -> None:
        """Take in the timers of a step. Chains are bound from their end: the first to fire is added last."""
        self._steps.insert(0, timers)
        if timers.is_event:
            self._event_steps.insert(0, timers)

    def on_condemned(self, set_aside: SetAside) -> None:
        """Ask this before every timer while some are condemned."""
        self._set_aside = set_aside

    def on_awake(self, tell: Callable[[], None]) -> None:
        """Call this when downstream believes us idle and we are not: before a record or a timer goes there."""
        self._tell_awake = tell

    # -- where time stands ------------------------------------------------------------------------------------------

    def current(self) -> int:
        """The event time of this very moment, also between two advances."""
        if not self.sources:
            return self.watermark
        return max(self.watermark, self._combined()[1])

    def _combined(self) -> tuple[Status, int]:
        sources = [each.combined for each in self.sources.values()]
        return combine(sources + [each.combined for each in self.channels.values()])

    @property
    def is_finished(self) -> bool:
        """Whether all input has ended and everything that waited for it has happened."""
        return self.status is Status.FINISHED and self.fired == MAX_TIME

    def snapshot(self) -> ClockState:
        """What to commit."""
        return ClockState(
            watermark=self.watermark,
            fired=self.fired,
            advanced_at_ms=self.advanced_at_ms,
            sources={topic: each.snapshot() for topic, each in self.sources.items()},
            channels={
                topic: (list(each.watermarks), [int(status) for status in each.statuses])
                for topic, each in self.channels.items()
            },
            announced=self.announced,
            counts=dict(self.counts),
        )

    def mark(self) -> ClockMark:
        """What one record or timer may change, as it is now; event time itself is nobody's to undo."""
        return ClockMark({topic: each.mark() for topic, each in self.sources.items()}, dict(self.counts))

    def undo(self, mark: ClockMark) -> None:
        """Be as it was at the mark."""
        for topic, source in mark.sources.items():
            self.sources[topic].undo(source)
        self.counts = Counter(mark.counts)

    def timers_near(self) -> int:
        """How many timers are in memory."""
        return sum(each.cells.near() for each in self._steps)

    def tell(self) -> None:
        """Downstream has been told how far we are."""
        self.announced = (self.status, self.fired)
        self.announced_at_ms = self._elapsed_ms()

    # -- time passes ------------------------------------------------------------------------------------------------

    def look(self) -> int:
        """Notice who is idle and who has woken up; returns what the inputs promise together."""
        self.status, watermark = self._combined()
        if self.status is Status.ACTIVE and self.announced[0] is Status.IDLE:
            self._tell_awake()
            if self.guard is not None:
                self.guard.settle()  # whatever fails next, this was said
            # It still waits for the next interval to hear how far we are.
            self.announced = (Status.ACTIVE, self.announced[1])
        return watermark

    def advance(self, limit: int) -> bool:
        """Bring event time up to what the inputs promise and fire what is due, at most `limit` timers or one turn.

        Returns whether nothing is left to fire; call it again until then, before the next record.

        Raises:
            TimerFailed: a step raised.
        """
        watermark = self.look()
        if watermark > self.watermark:
            self.watermark = watermark
            self.advanced_at_ms = self.now_ms()
        done = self._fire_all(1 if self.is_single else limit)
        self._set_limits()
        return done

    def fire_processing(self, now_ms: int, limit: int) -> bool:
        """Fire the processing-time timers that are due; returns whether none is left."""
        limit = 1 if self.is_single else limit
        self._turn_ends_ms = self._elapsed_ms() + TURN_MS
        steps = [each for each in self._steps if not each.is_event]
        for step in steps:
            if step.cells.next_due <= now_ms:
                limit = self._fire(step, now_ms, limit)
        return limit > 0

    def _fire_all(self, limit: int) -> bool:
        if self.fired == self.watermark and (not self._event_steps or self._next_due() > self.fired):
            return True
        self._turn_ends_ms = self._elapsed_ms() + TURN_MS
        is_end = self.watermark == MAX_TIME
        # At the end of all input nobody will wait for the clock on the wall any more.
        steps = self._steps if is_end else self._event_steps
        before = None
        # And there is no later: what timers set when they fire, in whichever time, has to fire now.
        while before is None or (is_end and self.fired_count > before):
            before = self.fired_count
            for step in steps:
                step.reached = self.watermark
                limit = self._fire(step, self.watermark, limit)
                if limit <= 0:
                    return False
        self.fired = self.watermark
        return True

    def _next_due(self) -> int:
        """When the next timer of event time is due; asked at every chunk, so without a generator."""
        due = MAX_TIME
        for step in self._event_steps:
            due = min(due, step.cells.next_due)
        return due

    def _fire(self, step: StepTimers, up_to: int, limit: int) -> int:
        """Fire timers of one step, as long as the turn lasts; returns what is left of the limit."""
        pace = self.pace
        self.is_firing = True
        self.is_ringing_out = not step.is_event and up_to == MAX_TIME
        try:
            while limit > 0 and step.cells.next_due <= up_to:
                began_ms = self._elapsed_ms()
                chunk = min(limit, pace.size)
                fired = self._fire_chunk(step, up_to, chunk)
                limit -= fired
                ended_ms = self._elapsed_ms()
                pace.learn(fired, ended_ms - began_ms)
                if ended_ms >= self._turn_ends_ms:
                    return 0  # also if none is left: what comes next is for another turn
                if fired < chunk:
                    break
        finally:
            self.is_firing = self.is_ringing_out = False
        return limit

    def _fire_chunk(self, step: StepTimers, up_to: int, count: int) -> int:
        """Fire at most so many timers of one step; returns how many there were."""
        for number in range(count):
            timer = step.cells.pop_due(up_to)
            if timer is None:
                return number
            self.fired_count += 1
            self._fire_one(step, timer)
        return count

    def _fire_one(self, step: StepTimers, timer: StoredTimer) -> None:
        try:
            if not self._set_aside(step.store, timer):
                step.fire(*timer)
            if self.guard is not None:
                self.guard.settle()
        except BaseException as error:
            if not is_of_the_record(error):
                raise
            if self.guard is not None:
                self.guard.undo()
            raise TimerFailed(step.store, timer, error) from error

    # -- when to look again -----------------------------------------------------------------------------------------

    def expect(self, time: int) -> None:
        """A timer for this time was set: a record that brings event time there must not be overlooked."""
        for source in self.sources.values():
            source.limit = min(source.limit, source.timestamp_for(time))

    def _set_limits(self) -> None:
        """From which timestamp on a record of each source may make a timer due."""
        due = self._next_due()
        for source in self.sources.values():
            # Others hold event time back: only a record that is newer than all before can change anything.
            source.limit = max(source.timestamp_for(due), source.highest + 1)


def _take_over(channels: Channels | None, watermarks: list[int], statuses: list[int]) -> None:
    """Give channels what was committed of them; there may be more of them now, or more than we have heard of."""
    if channels is not None:
        channels.grow(len(watermarks))
        known = min(len(watermarks), len(channels.watermarks))
        channels.watermarks[:known] = watermarks[:known]
        channels.statuses[:known] = [Status(each) for each in statuses[:known]]
