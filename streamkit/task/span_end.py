"""span_end: all that tasks still do and say when their span ends, up to what is to be written for it; and what follows.

    finish     operators that hold results back let them go; the stages behind are told how far event time has come
    freeze     changed state becomes changelog records, with one commit record per task that moved
    landed     it was committed: the frozen state may now reach the disk, and the tasks go on from there

Between the last two stands whoever writes (`runtime/commit.py`).
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from streamkit.codec.signals import HEADER, encode_signal
from streamkit.errors import Bug, EncodeError, Misconfigured, UserCodeError, is_of_the_record, said
from streamkit.model.commit import Commit, Member
from streamkit.model.counts import RECORDS_OUT
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.records import Headers
from streamkit.model.signal import Signal
from streamkit.operators.step import Held, Push
from streamkit.progress.pace import TURN_MS, Pace
from streamkit.progress.task_clock import ClockState
from streamkit.state.keys import COMMIT_KEY, PLAN_KEY
from streamkit.task.careful import guarded
from streamkit.task.clocks import Clocks
from streamkit.task.emit import Outbox
from streamkit.task.failure_book import Condemned, Kind
from streamkit.task.failures import Failures, Verdict
from streamkit.task.identity import PlanIdentity
from streamkit.task.task import Task

# What was held back: key, value and timestamp.
Result = tuple[bytes | None, Any, int]


class TaskPart(msgspec.Struct):
    """One task's part of a commit in flight."""

    task: Task
    rows: dict[bytes, bytes | None]
    positions: dict[TopicPartition, int]
    clock: ClockState
    span: int
    set_aside: dict[Kind, int]


class SpanCommit(msgspec.Struct):
    """A span on its way to the log: what is to be written for it, and the part of each task."""

    commit: Commit
    parts: list[TaskPart]


class SpanEndFailed(Exception):
    """The user's code or values failed while a span was being ended; nothing of it was sent."""

    def __init__(self, task: Task, verdict: Verdict, cause: BaseException | None = None) -> None:
        super().__init__(verdict.value if cause is None else said(cause))
        self.task = task
        self.verdict = verdict


class SpanEnd:
    """Ends the spans of the tasks of a worker, which share an outbox."""

    def __init__(self, outbox: Outbox, failures: Failures, plan: PlanIdentity, clocks: Clocks) -> None:
        self._outbox = outbox
        self._failures = failures
        self._plan = plan
        self._plan_row = plan.encode()
        self._clocks = clocks

    def finish(self, task: Task) -> Iterator[None]:
        """Let a task say what it says at the end of a span; the stages behind it come after.

        Yields when it has taken so long that the event loop should get its turn.

        Raises:
            SpanEndFailed: what was held back cannot be sent on; drop the span.
        """
        if task.moved:
            yield from self._let_go(task)
            self._announce(task)

    def freeze(self, tasks: Iterable[Task], member: Member, writer_id: str) -> SpanCommit | None:
        """Take all that these tasks have done since their last commit; None if they have done nothing.

        Raises:
            SpanEndFailed: a task's span cannot be frozen; drop the span.
        """
        moved = [task for task in tasks if task.moved]
        if not moved:
            if self._outbox.is_filled:
                raise Bug("there are results, and no task that they are of")
            return None
        # Results have no task of their own here; the first stands for all, since the counts of tasks are added up.
        moved[0].clock.counts[RECORDS_OUT] += self._outbox.results
        now_ms = self._clocks.now_ms()
        parts = [self._freeze(task, writer_id, now_ms) for task in moved]
        positions = {
            at: Position(offset, str(part.task.span))
            for part in parts
            for at, offset in (*part.task.unread.items(), *part.positions.items())
        }
        batches = self._outbox.take()
        changelogs = {part.task.changelog for part in parts}
        commit = Commit(
            [out for out in batches if out.partition not in changelogs],
            positions,
            member,
            [out for out in batches if out.partition in changelogs],
        )
        return SpanCommit(commit, parts)

    def landed(self, span: SpanCommit, ends: Mapping[TopicPartition, int]) -> bool:
        """The span is committed, and this is where its partitions end now; whether it brought a task forward."""
        has_advanced = any(part.positions != part.task.committed for part in span.parts)
        for part in span.parts:
            end = ends.get(part.task.changelog)
            if end is None:
                raise Bug(f"the commit of task {part.task.id} wrote nothing to {part.task.changelog}")
            part.task.state.committed(part.rows, end)
            part.task.landed(part.positions, part.clock, part.span)
            self._failures.log.landed(part.set_aside)
        return has_advanced

    def _let_go(self, task: Task) -> Iterator[None]:
        """Operators that held results back until the end of the span send them on, the first of the chain first.

        A chain is bound from its end, so what was registered last stands first and may still push into the others.
        """
        pace = Pace()
        if task.singly.results:
            pace.keep_single()
        began_ms = self._clocks.elapsed_ms()
        ends_ms = began_ms + TURN_MS
        for held, following in reversed(task.chain.held):
            results = list(held.take())
            if (condemned := task.book.results.get(held.step)) is not None:
                results = [each for each in results if not self._is_set_aside(task, each, condemned)]
            at = 0
            while at < len(results):
                chunk = results[at : at + pace.size]
                with guarded(task.careful):
                    self._send_all_on(task, held, chunk, following)
                at += len(chunk)
                now_ms = self._clocks.elapsed_ms()
                pace.learn(len(chunk), now_ms - began_ms)
                if now_ms >= ends_ms:
                    yield
                    now_ms = self._clocks.elapsed_ms()
                    ends_ms = now_ms + TURN_MS
                began_ms = now_ms

    def _is_set_aside(self, task: Task, result: Result, condemned: Mapping[bytes | None, Condemned]) -> bool:
        """Set a result aside if it is condemned.

        Raises:
            SpanEndFailed: the policy is to fail; it is not run, but not passed over either.
        """
        reason = condemned.get(result[0])
        if reason is None:
            return False
        if self._failures.stops_at(task, result[0], reason):
            raise SpanEndFailed(task, Verdict.STOP_TASK, UserCodeError(reason.error))
        self._failures.put_result_aside(task, reason, *result)
        return True

    def _send_all_on(self, task: Task, held: Held, results: Iterable[Result], following: Push) -> None:  # noqa: ARG002 - `runtime/whereabouts.py` reads it
        for result in results:
            if result[0] in task.book.muted or not self._send_on(task, following, result):
                self._failures.put_result_aside(task, task.book.muted[result[0]], *result)

    def _send_on(self, task: Task, following: Push, result: Result) -> bool:
        """Send a held-back result on; False if that failed and it is to be set aside."""
        try:
            following(*result)
            if task.careful is not None:
                task.careful.settle()
        except BaseException as error:
            if not is_of_the_record(error):
                raise
            if task.careful is not None:
                task.careful.undo()
            verdict = self._failures.judge_held(task, result[0], error)
            if verdict is Verdict.SET_ASIDE:
                return False
            raise SpanEndFailed(task, verdict, error) from error
        return True

    def _announce(self, task: Task) -> None:
        """Tell every partition downstream how far event time has come, behind the records that it speaks of."""
        signal = task.signal_due()
        if signal is not None:
            self.tell(task, signal)
            task.clock.tell()

    def tell(self, task: Task, signal: Signal) -> None:
        """Send a signal to every partition downstream, behind what the task has sent so far.

        Raises:
            Misconfigured: a shuffle does not even take a signal.
        """
        data = encode_signal(task.id.partition, signal)
        headers: Headers = [(HEADER, type(signal).__name__.encode())]
        for output in task.shuffles:
            lane = self._outbox.lane(output.topic, output.partitions or 0)
            try:
                for partition in range(len(lane.batches)):
                    lane.add(partition, None, data, self._clocks.now_ms(), headers)
            except EncodeError as error:  # no record is to blame, so no policy can decide about it
                raise Misconfigured(
                    f'the shuffle topic "{lane.topic}" takes no signals of event time',
                    detail=error.problem,
                    hint=f'raise max.message.bytes of "{lane.topic}" to 10000 or more',
                ) from error

    def _freeze(self, task: Task, writer_id: str, now_ms: int) -> TaskPart:
        """The task's changed state and its commit record, as changelog records of the span.

        Raises:
            SpanEndFailed: a record's state cannot be written; drop the span.
            Misconfigured: something else cannot.
        """
        task.span += 1
        lane = self._outbox.lane(task.changelog.topic, task.stage.partitions or 0)
        rows: dict[bytes, bytes | None] = {}
        try:
            rows = task.state.freeze()
            if not task.announced:
                rows[PLAN_KEY] = task.plan_row or self._plan_row
            rows[COMMIT_KEY] = task.commit_record(writer_id, self._plan, now_ms).encode()
            lane.add_rows(task.changelog.partition, rows, now_ms)
        except EncodeError as error:
            verdict = self._failures.judge_rows(task, _largest(rows), error)
            raise SpanEndFailed(task, verdict, error) from error
        task.moved = False
        if task.careful is not None and task.careful.is_calm:
            task.careful.end()
            task.careful = None
            task.book.is_suspect = False
        set_aside = task.book.end_span()
        return TaskPart(task, rows, dict(task.positions), task.clock.snapshot(), task.span, set_aside)


def _largest(rows: Mapping[bytes, bytes | None]) -> str:
    """What it is that takes most room in a changelog, for a person."""
    key, _ = max(rows.items(), key=lambda row: len(row[0]) + len(row[1] or b""), default=(b"", None))
    return {COMMIT_KEY: "the commit record", PLAN_KEY: "the plan"}.get(key, "the state")
