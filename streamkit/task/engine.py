"""engine: the tasks that end their spans together, driven by plain calls: no await, no Kafka.

    task = engine.make(task_id, stage, inputs)        a task, to be given its state
    engine.start(task, restored)                      it begins where a commit has left it
    engine.feed(task, batch)                          records of an input, and what they make due
    engine.pass_time(task)                            timers and generators that go by the clock on the wall
    engine.finish(task)                               it says what it says when a span ends, stage by stage
    span = engine.freeze(tasks, member, writer_id)    rows, results, signals and positions, ready to be written
    engine.landed(span, ends)                         they are: the tasks go on from there
    engine.rewind(task)                               they are not: everything since the last commit is forgotten

The worker's loop (`runtime/loop.py`) drives it over Kafka, slice by slice (`intake`), so that no slow record keeps replies
waiting; the harness and the simulation drive the worker's loop. Who has records of another origin, and nobody who waits,
has `feed` for a whole batch and `end_span` for the end of all tasks.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from streamkit.graph.plan import Plan
from streamkit.graph.stage import Input, Stage
from streamkit.model.commit import Batches, Member
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.model.records import FetchedBatch
from streamkit.progress.source_clock import GeneratorFailed
from streamkit.progress.task_clock import TimerFailed
from streamkit.task.careful import Careful, guarded
from streamkit.task.emit import Outbox
from streamkit.task.failures import Failures, Verdict
from streamkit.task.identity import identify
from streamkit.task.ingest import FetchedIntake
from streamkit.task.letters import Letters
from streamkit.task.limits import TopicLimits
from streamkit.task.routes import Routes
from streamkit.task.span_end import SpanCommit, SpanEnd
from streamkit.task.task import Restored, Task
from streamkit.task.time_passes import fire_due, hear
from streamkit.task.time_rules import TimeRules

# Records of a batch that are run at a time, where nobody else waits.
SLICE_RECORDS = 1_000


class Passed(NamedTuple):
    """What came of letting time pass in a task."""

    # What must be done about a timer or a generator that failed, if that is not done yet.
    verdict: Verdict | None
    # Whether nothing is left that is due; else let time pass once more.
    is_done: bool


class Engine:
    """All that happens to the tasks of one plan without waiting for anything."""

    def __init__(
        self,
        plan: Plan,
        rules: TimeRules,
        batches: Batches,
        partition_counts: Mapping[str, int],
        limits: Mapping[str, TopicLimits],
    ) -> None:
        """`batches` makes what results are appended to; `limits` is what a broker takes of each topic."""
        self.rules = rules
        self.outbox = Outbox(batches, limits)
        self.routes = Routes(plan, self.outbox, partition_counts)
        self.failures = Failures(plan.on_error, Letters(self.routes.letters), rules.clocks.elapsed_ms)
        self._span_end = SpanEnd(self.outbox, self.failures, identify(plan), rules.clocks)

    # -- the life of a task ---------------------------------------------------------------------------------------

    def make(self, task_id: TaskId, stage: Stage, inputs: Mapping[TopicPartition, Input]) -> Task:
        """A task that has yet to be restored."""
        task = Task(task_id, stage, inputs, self.rules, self.failures.put_timer_aside, self._make_careful)
        task.tell = self._span_end.tell
        return task

    def _make_careful(self, task: Task) -> Careful:
        lanes = [self.outbox.lane(each.topic, each.partitions or 0) for each in task.stage.outputs]
        changelog = self.outbox.lane(task.changelog.topic, task.stage.partitions or 0)
        held = [held for held, _ in task.chain.held]
        return Careful(task.state, task.clock, held, lanes, changelog.row_bytes_max)

    def start(self, task: Task, restored: Restored) -> None:
        """Let a task begin to run, with its state."""
        task.start(restored, self.routes.codes)

    def rewind(self, task: Task) -> None:
        """Forget what a task has done since its last commit; the span's results are dropped for all (`drop`)."""
        task.rewind(self.routes.codes)

    def drop(self) -> None:
        """Forget the results of the open span."""
        self.outbox.drop()

    # -- what happens in a span -----------------------------------------------------------------------------------

    def begin_span(self, now_ms: int) -> None:
        """Know what time it is at the brokers that results go to: some bound the timestamps that they take."""
        self.outbox.begin_span(now_ms)

    def intake(self, task: Task, batch: FetchedBatch) -> FetchedIntake:
        """Records on their way into a task, to be run slice by slice; an input that was idle is waited for from now on."""
        hear(task.clock, batch.partition.topic, self.rules)
        return FetchedIntake(task, batch)

    def feed(self, task: Task, batch: FetchedBatch) -> Verdict | None:
        """Run all records of a batch; returns what must be done if one of them fails, and is not set aside."""
        intake = self.intake(task, batch)
        while not intake.done:
            verdict = intake.run_slice(SLICE_RECORDS, self.failures)
            if verdict is not None:
                return verdict
            if not intake.is_paused:
                task.pace.learn(intake.slice_size, 0)
        return None

    def pass_time(self, task: Task) -> Passed:
        """Let processing time pass in a task: its generators look at the clock, and what is due in either time fires."""
        clock, now_ms = task.clock, self.rules.clocks.now_ms()
        fired_before = clock.fired_count
        try:
            for source in clock.sources.values():
                source.tick(now_ms)
            with guarded(task.careful):
                is_done = fire_due(clock, now_ms)
        except TimerFailed as failed:
            task.moved = True  # timers before it have fired
            verdict = self.failures.judge_timer(task, failed)
            # One that is set aside comes due again at once, and is set aside then.
            return Passed(None if verdict is Verdict.SET_ASIDE else verdict, is_done=False)
        except GeneratorFailed as failed:
            return Passed(self.failures.judge_tick(task, failed.cause), is_done=False)
        if clock.fired_count > fired_before or task.signal_due() is not None or task.has_finished_unsaid:
            task.moved = True
        return Passed(None, is_done)

    # -- the end of a span ----------------------------------------------------------------------------------------

    def finish(self, task: Task) -> Iterator[None]:
        """Let a task say what it says at the end of a span; the stages behind it come after.

        Yields when it has taken so long that whoever else waits should get a turn.

        Raises:
            SpanEndFailed: what was held back cannot be sent on; drop the span.
        """
        return self._span_end.finish(task)

    def freeze(self, tasks: Iterable[Task], member: Member, writer_id: str) -> SpanCommit | None:
        """All that these tasks have done since their last commit, ready to be written; None if they have done nothing.

        Raises:
            SpanEndFailed: a task's state cannot be written; drop the span.
        """
        return self._span_end.freeze(tasks, member, writer_id)

    def end_span(self, tasks: Iterable[Task], member: Member, writer_id: str) -> SpanCommit | None:
        """`finish` of all these tasks, upstream ones first, then `freeze`, where nobody else waits for a turn."""
        tasks = list(tasks)
        for task in tasks:
            for _ in self.finish(task):
                pass
        return self.freeze(tasks, member, writer_id)

    def landed(self, span: SpanCommit, ends: Mapping[TopicPartition, int]) -> bool:
        """The span is committed, and this is where its partitions end now; whether it brought a task forward."""
        return self._span_end.landed(span, ends)
