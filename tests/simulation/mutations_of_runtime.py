"""Broken promises of the runtime and of the state, each as a patch."""

from collections.abc import Iterator
from typing import Any

from streamkit.errors import DataRefused
from streamkit.model.commit import Commit
from streamkit.model.records import FetchedBatch
from streamkit.runtime import agree, assign, lost_state, restore, tail
from streamkit.runtime.commit import Committer
from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.output_topics import OutputTopics
from streamkit.runtime.refusals import Refusals
from streamkit.runtime.restore import Restoring
from streamkit.runtime.tail import Tail
from streamkit.state.committed import CommittedRows
from streamkit.state.memory import MemoryStore
from streamkit.state.task_state import TaskState
from streamkit.task import fetched, span_end
from streamkit.task.chain import RecordFailed
from streamkit.task.emit import Outbox
from streamkit.task.failures import Failures, Verdict
from streamkit.task.ingest import FetchedIntake, Intake
from streamkit.task.span_end import SpanCommit
from streamkit.task.task import Task
from streamkit.testing.memory.batch import MemoryBatch


def state_applied_before_commit(patch: Any) -> None:
    """Changed state goes to the store when the span is frozen."""
    freeze = TaskState.freeze

    def broken(self: TaskState) -> dict[bytes, bytes | None]:
        rows = freeze(self)
        self.store.apply(rows, self.store.changelog_offset)
        return rows

    patch(TaskState, "freeze", broken)


def tasks_kept_over_a_missed_generation(patch: Any) -> None:
    """A worker that was away goes on as if nobody had taken its tasks meanwhile."""
    patch(assign, "_follows", lambda before, _now: before is not None)


def restore_end_before_the_fence(patch: Any) -> None:
    """The changelog is copied up to where it ended before the former owner was fenced."""

    async def broken(self: Restoring, reader: Any, store: Any, _name: str) -> Any:
        changelog = self._task.changelog
        reader.seek(changelog, store.changelog_offset)
        stable = (await self._admin.end_offsets([changelog], committed=True))[changelog]
        tail = Tail(store.changelog_offset, store.changelog_offset)
        await self._copy(reader, store, tail, stable)
        record = restore.last_commit(store)
        if record is not None:
            await self._retire_dead([record])
        await self._stable_positions()
        return self._restored(store, record, {}, tail.strays)

    patch(Restoring, "_bring_up", broken)


def generation_kept_in_doubt(patch: Any) -> None:
    """Without a transaction, positions of a commit in doubt may arrive behind those of a later one."""
    recover = WorkerLoop._recover

    async def broken(self: WorkerLoop) -> None:
        self._is_transactional = True
        await recover(self)

    async def nothing(_self: OutputTopics) -> bool:
        return False  # to ask takes time in which late positions arrive

    patch(WorkerLoop, "_recover", broken)
    patch(OutputTopics, "look_again", nothing)


def changelogs_beside_the_results(patch: Any) -> None:
    """Without a transaction, tasks may be ahead of what they have written."""

    def broken(batches: Any, positions: Any, member: Any, changelogs: Any) -> Commit:
        return Commit([*batches, *changelogs], positions, member)

    patch(span_end, "Commit", broken)


def at_most_once_from_the_record(patch: Any) -> None:
    """The positions that were written first are not what counts."""
    patch(agree, "agreed_positions", lambda record, group, _guarantee: {**group, **record})


def restore_reads_uncommitted(patch: Any) -> None:
    """Aborted changelog records are restored too."""
    run = Restoring.run

    class Uncommitted:
        def __init__(self, log: Any) -> None:
            self._log = log

        def reader(self, *, committed: bool) -> Any:  # noqa: ARG002 - that is the fault
            return self._log.reader(committed=False)

    async def broken(self: Restoring) -> Any:
        self._log = Uncommitted(self._log)  # type: ignore[assignment]
        return await run(self)

    patch(Restoring, "run", broken)


def restore_ignores_the_tail(patch: Any) -> None:
    """A store that is there is taken as it is."""
    copy = Restoring._copy

    async def broken(self: Restoring, reader: Any, store: Any, tail: Tail, end: int) -> None:
        if store.changelog_offset == 0:
            await copy(self, reader, store, tail, end)

    patch(Restoring, "_copy", broken)


def overlay_kept_on_rewind(patch: Any) -> None:
    """State of a dropped span stays."""
    patch(TaskState, "drop", lambda _self: None)


def outbox_kept_on_rewind(patch: Any) -> None:
    """Output of a dropped span stays."""
    patch(Outbox, "drop", lambda _self: None)


def span_kept_on_rewind(patch: Any) -> None:
    """A dropped span keeps its number, as if it had been committed."""
    rewind = Task.rewind

    def broken(self: Task, outputs: Any) -> None:
        span = self.span
        rewind(self, outputs)
        self.span = span

    patch(Task, "rewind", broken)


def operators_not_bound_anew(patch: Any) -> None:
    """What operators remember of a dropped span stays."""
    rewind = Task.rewind

    def broken(self: Task, outputs: Any) -> None:
        chain = self._chain
        rewind(self, outputs)
        self._chain = chain or self._chain

    patch(Task, "rewind", broken)


def changelog_gets_a_stale_value(patch: Any) -> None:
    """A key that was in the last span too is written with the value it had then."""
    freeze = TaskState.freeze
    before: dict[int, dict[bytes, bytes | None]] = {}

    def broken(self: TaskState) -> dict[bytes, bytes | None]:
        rows = freeze(self)
        last = before.get(id(self), {})
        before[id(self)] = dict(rows)
        rows.update({key: last[key] for key in rows if key in last})
        return rows

    patch(TaskState, "freeze", broken)


def commit_record_misses_an_input(patch: Any) -> None:
    """Of several inputs one is left out."""
    commit_record = Task.commit_record

    def broken(self: Task, writer_id: str, plan: Any, now_ms: int) -> Any:
        whole = self.positions
        self.positions = dict(list(whole.items())[: max(1, len(whole) - 1)])
        try:
            return commit_record(self, writer_id, plan, now_ms)
        finally:
            self.positions = whole

    patch(Task, "commit_record", broken)


def position_behind_by_one(patch: Any) -> None:
    """The last record of a slice is read again after a restart."""
    _shift_positions(patch, -1)


def position_ahead_by_one(patch: Any) -> None:
    """The record after a slice is not read after a restart."""
    _shift_positions(patch, 1)


def _shift_positions(patch: Any, by: int) -> None:
    advance = FetchedIntake._advance

    def broken(self: FetchedIntake, offset: int) -> None:
        advance(self, offset)
        if offset != self._next_offset:
            self.task.positions.advance(self.partition, offset + by)

    patch(FetchedIntake, "_advance", broken)


def first_offset_ignored(patch: Any) -> None:
    """A batch entered in its middle is run from its beginning."""
    patch(fetched, "_from_offset", lambda batch: iter(list(batch.records)))


def landed_before_the_commit(patch: Any) -> None:
    """A span counts as committed while its commit is in flight."""
    write = Committer._write

    async def broken(self: Committer, span: SpanCommit) -> None:
        for part in span.parts:
            part.task.landed(part.positions, part.clock, part.span)
        await write(self, span)

    patch(Committer, "_write", broken)


def landed_at_the_open_positions(patch: Any) -> None:
    """After a commit the positions of the span behind it count as committed."""
    landed = Task.landed
    patch(Task, "landed", lambda self, _positions, clock, span: landed(self, self.positions, clock, span))


def condemned_record_dropped(patch: Any) -> None:
    """A condemned record is passed over without a dead letter."""
    put_aside = Failures.put_aside

    def broken(self: Failures, task: Task, partition: Any, record: Any, reason: Any) -> None:
        if record.offset not in task.book.records.get(partition, {}):
            put_aside(self, task, partition, record, reason)

    patch(Failures, "put_aside", broken)


def failing_record_leaves_its_effects(patch: Any) -> None:
    """A record that failed late is set aside on the spot, its state and output stay."""
    judge = Failures.judge

    def broken(self: Failures, task: Task, partition: Any, failed: RecordFailed) -> Verdict:
        verdict = judge(self, task, partition, failed)
        if verdict is not Verdict.RUN_AGAIN:
            return verdict
        reason = task.book.records[partition].pop(failed.record.offset)
        self.put_aside(task, partition, failed.record, reason)
        return Verdict.SET_ASIDE

    patch(Failures, "judge", broken)


def dead_letter_outside_the_span(patch: Any) -> None:
    """Dead letters are written at once, whatever becomes of the span."""
    put_aside = Failures.put_aside

    def broken(self: Failures, *args: Any) -> None:
        put_aside(self, *args)
        lane = self._letters
        broker = lane._writer._client.broker  # type: ignore[attr-defined]
        for out in lane.take():
            assert isinstance(out.batch, MemoryBatch)
            broker.transactions.append(out.partition, out.batch)

    patch(Failures, "put_aside", broken)


def store_claims_more_than_it_has(patch: Any) -> None:
    """The offset in the store is ahead of what is in it."""
    apply = MemoryStore.apply

    def broken(self: MemoryStore, writes: Any, changelog_offset: int) -> None:
        apply(self, writes, changelog_offset + 5)

    patch(MemoryStore, "apply", broken)


def frozen_rows_not_read(patch: Any) -> None:
    """While a span is being committed the next one reads what was there before it."""
    patch(TaskState, "find", lambda self, key: self.read(key))


def rows_on_their_way_not_read(patch: Any) -> None:
    """While the disk writes rows, the store is asked for them, which has not got them yet."""

    def broken(self: CommittedRows, key: bytes) -> bytes | None:
        return self._pending.rows[key] if key in self._pending.rows else self.store.get(key)

    patch(CommittedRows, "read", broken)


def tombstones_not_restored(patch: Any) -> None:
    """Deletions in the changelog are passed over."""
    rows = tail._rows

    def broken(batch: FetchedBatch) -> Iterator[tuple[int, bytes, bytes | None]]:
        return ((offset, key, value) for offset, key, value in rows(batch) if value is not None)

    patch(tail, "_rows", broken)


def old_local_state_believed(patch: Any) -> None:
    """A store is brought up to date by the tail of its changelog, however long it has lain idle."""
    patch(restore, "is_too_old", lambda _at_ms, _now_ms: False)


def stray_rows_restored(patch: Any) -> None:
    """Rows that no commit record follows are restored like those of a whole span."""
    add = Tail.add

    def broken(self: Tail, batch: FetchedBatch) -> None:
        add(self, batch)
        self._close(self.at)

    patch(Tail, "add", broken)


def empty_changelog_believed(patch: Any) -> None:
    """A changelog without a commit record is taken for that of a task that never ran."""
    patch(restore, "has_committed", lambda _positions, _guarantee: False)
    patch(lost_state, "has_committed", lambda _positions, _guarantee: False)
    patch(agree, "has_committed", lambda _positions, _guarantee: False)


def refused_data_is_tried_again(patch: Any) -> None:
    """A commit that the broker refuses is made again, as it was."""

    async def broken(self: WorkerLoop, _refused: DataRefused) -> None:
        await self._recover()

    patch(WorkerLoop, "_narrow", broken)


def another_record_is_condemned(patch: Any) -> None:
    """The record behind the one that is refused is set aside."""
    took = Refusals.took

    def broken(self: Refusals, intake: Intake) -> None:
        took(self, intake)
        span = self._open
        if span.unit is not None and isinstance(span.unit[1], int):
            span.unit = (span.unit[0], span.unit[1] + 1)  # type: ignore[assignment]

    patch(Refusals, "took", broken)


def spans_overlap_in_a_search(patch: Any) -> None:
    """A span of one record is judged by what became of the one before it."""

    def broken(self: Refusals) -> None:
        self._open = type(self._open)()

    patch(Refusals, "sent", broken)
