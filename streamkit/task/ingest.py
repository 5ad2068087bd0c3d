"""ingest: records on their way into a task, cut into slices that the loop can afford.

Before this step `runtime/poll.py` fetched committed bytes; after it `task/chain.py` runs each slice. What cannot
be decoded or processed goes to `task/failures.py`.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from itertools import takewhile
from operator import attrgetter

from streamkit.errors import EncodeError, Misconfigured
from streamkit.model.counts import RECORDS_IN
from streamkit.model.ids import MIN_TIME, TopicPartition
from streamkit.model.records import FetchedBatch, LogRecord, Unreadable
from streamkit.progress.channels import Status
from streamkit.progress.source_clock import GeneratorFailed
from streamkit.progress.task_clock import TimerFailed
from streamkit.task.careful import guarded
from streamkit.task.chain import Paused, RecordFailed, failed_behind
from streamkit.task.failure_book import Condemned
from streamkit.task.failures import Failures, Verdict
from streamkit.task.fetched import FetchedRecords
from streamkit.task.outside import STATE
from streamkit.task.task import Task
from streamkit.task.time_passes import TIMERS_AT_ONCE, begin_slice, end_slice


class Intake(ABC):
    """Records on their way into a task, slice by slice."""

    def __init__(self, task: Task, partition: TopicPartition) -> None:
        self.task = task
        self.partition = partition
        self._run = task.chain.entries[partition.topic]
        self.slice_size = 0
        # Whether the last slice ended because timers filled it: the event loop comes next.
        self.is_paused = False
        self.done = False

    def run_slice(self, limit: int, failures: Failures) -> Verdict | None:
        """Run up to `limit` records (or what was waiting), fewer if they are slow, and fire what they make due.

        `slice_size` then says how many it took. Returns a verdict if the loop must stop this span.
        """
        task = self.task
        task.moved = True  # whatever comes of it: timers alone change state and send results on
        self.slice_size = 0
        self.is_paused = False
        try:
            with guarded(task.careful):
                return self._run_timed(limit, failures)
        except TimerFailed as failed:
            self.is_paused = True  # one that is set aside comes due again first
            verdict = failures.judge_timer(task, failed)
            return None if verdict is Verdict.SET_ASIDE else verdict
        except GeneratorFailed as failed:
            return failures.judge(task, self.partition, failed_behind(failed))

    def _run_timed(self, limit: int, failures: Failures) -> Verdict | None:
        """Run records, with what they make due before and after them."""
        task, topic = self.task, self.partition.topic
        if not begin_slice(task.clock, topic, task.rules):
            self.is_paused = True
            return None
        verdict = self._run_records(min(limit, task.pace.size), failures)
        if verdict is None:
            end_slice(task.clock, topic, task.rules, is_single=task.pace.is_single)
        return verdict

    def _run_one(self, record: LogRecord) -> None:
        """Run one record, and undo what it did if it fails and the task is careful.

        Raises:
            RecordFailed: it failed, or what it left in the state cannot be stored.
            Paused, TimerFailed: it was not run, for what is due before it is not done yet.
        """
        careful = self.task.careful
        if careful is None:
            self._run_all([record])
            return
        source = self.task.clock.sources.get(self.partition.topic)
        try:
            self._run([record])
            if source is not None and source.in_hand is not None:
                source.observe_in_hand()
            careful.settle()
        except EncodeError as error:
            careful.undo()
            raise RecordFailed(record, STATE, error) from error
        except GeneratorFailed as failed:
            careful.undo()
            raise failed_behind(failed) from failed
        except RecordFailed:
            careful.undo()
            raise

    def _run_all(self, records: list[LogRecord]) -> None:
        """Run records; if one fails, event time is where those before it have brought it, as it is in a careful task.

        A time that only a failed record was ahead with would make others late.

        Raises:
            RecordFailed, Paused, TimerFailed, GeneratorFailed: as the chain.
        """
        source = self.task.clock.sources.get(self.partition.topic)
        highest = MIN_TIME if source is None else source.highest
        try:
            self._run(records)
        except RecordFailed as failed:
            if source is not None:
                source.in_hand = None  # the generator has not seen it
                if source.generator is None and source.highest > highest:
                    time_of = self.task.chain.times[self.partition.topic]
                    source.highest = max([highest, *map(time_of, _before(failed.record, records))])
            raise

    @abstractmethod
    def _run_records(self, limit: int, failures: Failures) -> Verdict | None:
        """Run the records of one slice; a verdict if the loop must stop this span."""


class FetchedIntake(Intake):
    """One fetched batch on its way into a task."""

    def __init__(self, task: Task, batch: FetchedBatch) -> None:
        super().__init__(task, batch.partition)
        self._next_offset = batch.next_offset
        source = task.clock.sources.get(batch.partition.topic)
        if source is not None and source.end is not None:
            self._next_offset = min(source.end, batch.next_offset)
        self._fetched = FetchedRecords(batch, self._next_offset)
        self._is_source = task.inputs[batch.partition].kind == "source"
        # Records taken from the batch that still wait: those behind one that was set aside.
        self._waiting: list[LogRecord] = []
        # The last record that was run, or set aside.
        self.last_offset = batch.first_offset - 1

    def _run_records(self, limit: int, failures: Failures) -> Verdict | None:
        records, self._waiting = self._waiting[:limit], self._waiting[limit:]
        is_last = False
        if not records:
            if self._fetched.unreadable is not None:
                return self._set_stretch_aside(self._fetched.unreadable, failures)
            task, partition = self.task, self.partition
            is_one_by_one = task.careful is not None or bool(task.book.records.get(partition))
            records = self._fetched.take(limit, task.positions.read(partition), is_each_proven=is_one_by_one)
            is_last = self._fetched.is_done
        self.slice_size = len(records)
        if not records:
            self._finish()
            return None
        self.last_offset = records[-1].offset
        verdict = self._run_taken(records, failures, is_last=is_last)
        if self._is_source:
            self.task.clock.counts[RECORDS_IN] += self._taken(records)
        return verdict

    def _taken(self, records: list[LogRecord]) -> int:
        """How many of a slice are behind us; a task that waits does so at a record, and takes it again."""
        at = self.task.positions.read(self.partition)
        return len(records) if records[-1].offset < at else sum(record.offset < at for record in records)

    def _run_taken(self, records: list[LogRecord], failures: Failures, *, is_last: bool) -> Verdict | None:
        condemned = self.task.book.records.get(self.partition)
        if condemned or self.task.careful is not None:
            return self._run_one_by_one(records, condemned or {}, failures)
        try:
            self._run_all(records)
        except RecordFailed as failed:
            if self._fetched.lies():
                return failures.judge_lie(self.task)
            return self._judge(failed, records, failures)
        except Paused as paused:
            if self._fetched.lies():
                return failures.judge_lie(self.task)
            self._pause(paused.record.offset, records)
            return None
        if is_last:
            self._finish()
        else:
            self._advance(records[-1].offset + 1)
        return None

    def _set_stretch_aside(self, stretch: Unreadable, failures: Failures) -> Verdict | None:
        """Let the policy decide about a stretch of a source that nobody can read.

        Raises:
            Misconfigured: it is a shuffle, where only we write and nothing may be missing.
        """
        if self.task.inputs[self.partition].kind == "shuffle":
            raise Misconfigured(
                f'shuffle "{self.partition.topic}" cannot be read at offset {stretch.offset}: {stretch.reason}',
                where=str(self.partition),
                hint="only streamkit may write to shuffle topics: look at it with kafka-dump-log.sh, and at the ACLs",
            )
        self.slice_size = 1
        verdict = failures.judge_stretch(self.task, self.partition, stretch)
        if verdict is not Verdict.SET_ASIDE:
            return verdict
        self.last_offset = stretch.offset
        self._fetched.unreadable = None
        self._advance(min(stretch.next_offset, self._next_offset))
        return None

    def _run_one_by_one(
        self, records: list[LogRecord], condemned: Mapping[int, Condemned], failures: Failures
    ) -> Verdict | None:
        """As `run_slice`, where records have failed: condemned ones are set aside, others can be undone."""
        for record in records:
            reason = condemned.get(record.offset)
            try:
                if reason is not None:
                    failures.put_aside(self.task, self.partition, record, reason)
                else:
                    self._run_one(record)
            except RecordFailed as failed:
                verdict = failures.judge(self.task, self.partition, failed)
                if verdict is not Verdict.SET_ASIDE:
                    return verdict
            except Paused:
                self._pause(record.offset, records)
                return None
            except TimerFailed:
                self._pause(record.offset, records)
                raise
            self._advance(record.offset + 1)
            if not self._has_caught_up(records, record.offset + 1):
                return None
        return None

    def _has_caught_up(self, records: list[LogRecord], offset: int) -> bool:
        """Fire what a generator has made due, before the record at this offset; whether none of it is left.

        Every other source looks at the time itself when the next record comes.
        """
        source = self.task.clock.sources.get(self.partition.topic)
        if self.task.careful is None or source is None or source.generator is None:
            return True
        if self.task.clock.is_single:
            return True  # what it makes due is for the next span
        try:
            is_done = self.task.clock.advance(TIMERS_AT_ONCE)
        except TimerFailed:
            self._pause(offset, records)
            raise
        if not is_done:
            self._pause(offset, records)
        return is_done

    def _judge(self, failed: RecordFailed, records: list[LogRecord], failures: Failures) -> Verdict | None:
        """Let the policy decide; if the record could be set aside, the ones behind it are next."""
        verdict = failures.judge(self.task, self.partition, failed)
        if verdict is Verdict.WAIT:
            self._advance(failed.record.offset)
        if verdict is not Verdict.SET_ASIDE:
            return verdict
        after = failed.record.offset + 1
        self._advance(after)
        self._waiting = _behind(records, after) + self._waiting
        return None

    def _pause(self, offset: int, records: list[LogRecord]) -> None:
        """Go on from this record when it is our turn again."""
        self._advance(offset)
        self._waiting = _behind(records, offset) + self._waiting
        self.is_paused = True

    def _finish(self) -> None:
        """The batch is done: the position moves behind it, over markers and aborted records too."""
        if self._fetched.unreadable is not None:
            return  # not before that is set aside
        self._advance(self._next_offset)
        self.done = True
        if self.task.is_read_to_its_end(self.partition):
            self.task.clock.sources[self.partition.topic].status = Status.FINISHED

    def _advance(self, offset: int) -> None:
        self.task.positions.advance(self.partition, offset)


def _before(record: LogRecord, records: list[LogRecord]) -> Iterator[LogRecord]:
    """Those that were run before this one; not told by offsets, which may lie."""
    return takewhile(lambda each: each is not record, records)


def _behind(records: list[LogRecord], offset: int) -> list[LogRecord]:
    """Those from this offset on; not looked at one by one, for all of them may fail one after the other."""
    return records[bisect_left(records, offset, key=attrgetter("offset")) :]
