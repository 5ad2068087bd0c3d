"""A task clock with three steps that write down what fires, over real timers."""

from typing import Any

import msgspec

from streamkit.model.event_time import TimeRule
from streamkit.progress.channels import Channels, Status
from streamkit.progress.source_clock import SourceClock, SourceState
from streamkit.progress.task_clock import ClockState, StepTimers, TaskClock
from streamkit.state.memory import MemoryStores
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState

KINDS = ("event_timers", "processing_timers")
NOW = 1_600_000_000_000
STEPS = ("first", "second", "third")
# A timer as the tests write it: (step, key, time).
Wanted = tuple[str, bytes, int]


class Rig:
    """A task with some steps, one source and one shuffle of two channels; its timers tell what they saw.

    `rules` says which timers a timer sets when it fires. `stores` is the disk: another rig on it is a restart.
    """

    def __init__(
        self,
        stores: MemoryStores | None = None,
        clock: ClockState | None = None,
        *,
        steps: tuple[str, ...] = STEPS,
        channels: int = 0,
        rules: dict[Wanted, list[Wanted]] | None = None,
    ) -> None:
        self.stores = stores or MemoryStores()
        self.rules = rules or {}
        self.now_ms = NOW
        self.heard: list[tuple[str, bytes, int]] = []
        # What each step took the time to be while a timer fired: (who fired, {step: now}).
        self.saw: list[tuple[str, dict[str, int]]] = []
        specs = [StoreSpec(f"{step}.{kind}", kind, bool) for step in steps for kind in KINDS]
        self.state = TaskState(self.stores.open("task-0"), specs)
        state = clock or ClockState()
        source = SourceClock(TimeRule(), state.sources.get("in", SourceState()), NOW)
        self.source = source
        self.channels = Channels(channels)
        self.clock = TaskClock(
            state,
            {} if channels else {"in": source},
            {"shuffle": self.channels} if channels else {},
            lambda: self.now_ms,
            lambda: self.now_ms,
        )
        self.timers: dict[tuple[str, str], StepTimers] = {}
        for step in reversed(steps):  # a chain is bound from its end
            for kind in KINDS:
                spec = StoreSpec(f"{step}.{kind}", kind, bool)
                timers = StepTimers(
                    spec.name,
                    self.state.cells(spec),
                    self._fire(step, kind),
                    self.clock,
                    is_event=kind == "event_timers",
                )
                self.timers[step, kind] = timers
                self.clock.add_step(timers)

    def _fire(self, step: str, kind: str) -> Any:
        def fire(key: bytes, time: int, namespace: bytes) -> None:
            if key == b"bad":
                raise ValueError("bad timer")
            name = step if kind == "event_timers" else f"{step}*"
            self.heard.append((name, key, time))
            self.saw.append((name, {each: self.now(each) for each, its in self.timers if its == KINDS[0]}))
            for other, its_key, its_time in self.rules.get((step, key, time), []):
                self.set(other, its_key, its_time)

        return fire

    def now(self, step: str) -> int:
        return self.timers[step, "event_timers"].now

    def set(self, step: str, key: bytes, time: int, kind: str = "event_timers") -> None:
        self.timers[step, kind].add(key, time)

    def to(self, timestamp: int) -> None:
        """A record with this timestamp came."""
        self.source.highest = max(self.source.highest, timestamp)

    def finish(self) -> None:
        self.source.status = Status.FINISHED

    def commit(self) -> ClockState:
        """What a commit record keeps of time, through bytes."""
        self.state.committed(self.state.freeze(), self.state.changelog_offset + 1)
        data = msgspec.msgpack.encode(self.clock.snapshot())
        return msgspec.msgpack.decode(data, type=ClockState)

    def restarted(self, **options: Any) -> "Rig":
        """Commit, then go on in another life."""
        clock = self.commit()
        self.state.close()
        again = Rig(self.stores, clock, rules=self.rules, **options)
        again.heard, again.saw = self.heard, self.saw
        return again
