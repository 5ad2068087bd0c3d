"""ingest: records on their way into a task, cut into slices that the loop can afford.

Before this step `runtime/poll.py` fetched committed bytes; after it `runtime/chain.py` runs each slice. What cannot
be decoded or processed goes to `runtime/failures.py`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping

from streamkit.errors import Misconfigured
from streamkit.kafka.records import FetchedBatch, LogRecord, Unreadable
from streamkit.model.ids import TopicPartition
from streamkit.progress.channels import Status
from streamkit.progress.source_clock import GeneratorFailed
from streamkit.progress.task_clock import TimerFailed
from streamkit.runtime.align import begin_slice, end_slice
from streamkit.runtime.chain import Paused, RecordFailed, failed_behind
from streamkit.runtime.failures import Failures, Verdict
from streamkit.runtime.fetched import FetchedRecords
from streamkit.runtime.task import Condemned, Task


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
        task, topic = self.task, self.partition.topic
        task.moved = True  # whatever comes of it: timers alone change state and send results on
        self.slice_size = 0
        self.is_paused = False
        try:
            if not begin_slice(task.clock, topic, task.rules):
                self.is_paused = True
                return None
            verdict = self._run_records(min(limit, task.pace.size), failures)
            if verdict is None:
                end_slice(task.clock, topic, task.rules)
        except TimerFailed as failed:
            return failures.judge_timer(task, failed)
        except GeneratorFailed as failed:
            return failures.judge(task, self.partition, failed_behind(failed))
        return verdict

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
        # Records taken from the batch that still wait: those behind one that was set aside.
        self._waiting: list[LogRecord] = []

    def _run_records(self, limit: int, failures: Failures) -> Verdict | None:
        records, self._waiting = self._waiting, []
        is_last = False
        if not records:
            if self._fetched.unreadable is not None:
                return self._set_stretch_aside(self._fetched.unreadable, failures)
            records = self._fetched.take(limit, self.task.positions[self.partition])
            is_last = self._fetched.is_done
        self.slice_size = len(records)
        if not records:
            self._finish()
            return None
        condemned = self.task.condemned.get(self.partition)
        if condemned:
            return self._run_carefully(records, condemned, failures)
        try:
            self._run(records)
        except RecordFailed as failed:
            return self._judge(failed, records, failures)
        except Paused as paused:
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
        self._fetched.unreadable = None
        self._advance(min(stretch.next_offset, self._next_offset))
        return None

    def _run_carefully(
        self, records: list[LogRecord], condemned: Mapping[int, Condemned], failures: Failures
    ) -> Verdict | None:
        """As `run_slice`, looking out for condemned records: only while there are any."""
        for index, record in enumerate(records):
            reason = condemned.get(record.offset)
            try:
                if reason is not None:
                    failures.put_aside(self.task, self.partition, record, reason)
                else:
                    self._run([record])
            except RecordFailed as failed:
                return self._judge(failed, records[index:], failures)
            except Paused:
                self._pause(record.offset, records[index:])
                return None
            self._advance(record.offset + 1)
        return None

    def _judge(self, failed: RecordFailed, records: list[LogRecord], failures: Failures) -> Verdict | None:
        """Let the policy decide; if the record could be set aside, the ones behind it are next."""
        verdict = failures.judge(self.task, self.partition, failed)
        if verdict is not Verdict.SET_ASIDE:
            return verdict
        after = failed.record.offset + 1
        self._advance(after)
        self._waiting = [record for record in records if record.offset >= after]
        return None

    def _pause(self, offset: int, records: list[LogRecord]) -> None:
        """Go on from this record when it is our turn again."""
        self._advance(offset)
        self._waiting = [record for record in records if record.offset >= offset]
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
        self.task.positions[self.partition] = offset
