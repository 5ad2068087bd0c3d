"""Steps bound as a task binds them: its own scope, clock and state, over a store in memory; spans are ended by hand."""

from typing import Any

from streamkit.model.event_time import TimeRule
from streamkit.model.ids import MIN_TIME
from streamkit.operators.fused import named, step_in
from streamkit.operators.step import MAIN, Push, Statements, Step
from streamkit.progress.source_clock import SourceClock, SourceState
from streamkit.progress.task_clock import ClockState, TaskClock
from streamkit.state.memory import MemoryStores
from streamkit.state.task_state import TaskState
from streamkit.task.chain import TaskScope
from streamkit.task.task import NO_TIME

Written = tuple[bytes | None, bytes | None, int]
Pushed = tuple[bytes | None, Any, int]


def writing_to(written: list[Written]) -> Statements:
    """What a step does to write a record into a list."""
    return Statements("", ("written.append((out_key, data, timestamp))",), {"written": written})


class Outputs(dict[str, Statements]):
    """For every topic a list of what was written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, list[Written]] = {}

    def __missing__(self, topic: str) -> Statements:
        statements = self[topic] = writing_to(self.written.setdefault(topic, []))
        return statements


class StepScope(TaskScope):
    """The scope of a task with these steps, and its life by hand. On the stores of one that has ended: a restart."""

    def __init__(
        self,
        *steps: Step,
        partition: int = 0,
        stores: MemoryStores | None = None,
        watermark: int = MIN_TIME,
        wall_ms: int = 0,
    ) -> None:
        self.steps = steps
        self.stores = stores or MemoryStores()
        self.store = self.stores.open("task")
        self.state = TaskState(self.store, [spec for step in steps for spec in step.stores])
        self.wall_ms = wall_ms
        self.source = SourceClock(TimeRule(), SourceState(watermark=watermark), 0)
        clock = TaskClock(
            ClockState(watermark, watermark), {"in": self.source}, {}, lambda: self.wall_ms, lambda: 0
        )
        outputs = Outputs()
        self.written = outputs.written
        super().__init__(partition, self.state, clock, NO_TIME, outputs)

    def end_span(self) -> None:
        """What was held back goes on, the first of the chain first (steps are bound from the end); then commit."""
        for held, following in reversed(self.held):
            for record in held.take():
                following(*record)
        self.state.committed(self.state.freeze(), self.state.changelog_offset + 1)
        self.state.write_pending()

    def rows(self) -> dict[bytes, bytes]:
        """What was committed."""
        return dict(self.store.scan(b""))

    def restarted(self) -> "StepScope":
        """What a new task finds: the rows that were committed, and time where it stood."""
        self.state.close()
        return type(self)(
            *self.steps,
            partition=self.partition,
            stores=self.stores,
            watermark=self.clock.watermark,
            wall_ms=self.wall_ms,
        )


class Chain:
    """Some steps in a row, and what came out at their end."""

    def __init__(self, *steps: Step, partition: int = 0, scope: StepScope | None = None) -> None:
        self.scope = scope or StepScope(*steps, partition=partition)
        self.out: list[Pushed] = []

        def collect(key: bytes | None, value: Any, timestamp: int) -> None:
            self.out.append((key, value, timestamp))

        push: Push = collect
        for step in reversed(steps):
            push = named(step.bind({MAIN: push}, self.scope)[MAIN])
        self.push = push

    def restarted(self, *steps: Step) -> "Chain":
        """The same steps, or others with the same state, in a new task."""
        scope = self.scope.restarted()
        return Chain(*(steps or scope.steps), scope=scope)

    @property
    def values(self) -> list[Any]:
        return [value for _, value, _ in self.out]


def steps_in(error: BaseException) -> list[str]:
    """The steps that an error came through, from the traceback."""
    found, trace = [], error.__traceback__
    while trace is not None:
        found += [step] if (step := step_in(trace)) else []
        trace = trace.tb_next
    return found
