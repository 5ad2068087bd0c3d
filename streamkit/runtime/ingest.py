"""ingest: a fetched batch, its task and its decoder, cut into slices that the loop can afford.

Before this step `runtime/poll.py` fetched committed bytes; after it `runtime/chain.py` runs each slice. What cannot
be decoded or processed goes to `runtime/failures.py`.
"""

from collections.abc import Iterator
from itertools import chain as join

from streamkit.kafka.ports import FetchedBatch, LogRecord
from streamkit.model.ids import TopicPartition
from streamkit.runtime.chain import RecordFailed, run
from streamkit.runtime.failures import Failures, Verdict
from streamkit.runtime.task import Task


class Intake:
    """One fetched batch on its way into a task, slice by slice."""

    def __init__(self, task: Task, batch: FetchedBatch) -> None:
        self.task = task
        self.partition: TopicPartition = batch.partition
        self._decode = task.inputs[batch.partition]
        self._push = task.chain.entries[batch.partition.topic]
        self._next_offset = batch.next_offset
        self._records = _from_offset(iter(batch.records), batch.first_offset)
        self.done = False

    def run_slice(self, limit: int, failures: Failures) -> Verdict | None:
        """Run up to `limit` records; returns a verdict if the loop must stop this span."""
        condemned = self.task.condemned.get(self.partition)
        if condemned:
            return self._run_carefully(limit, failures)
        try:
            last = run(self._records, limit, self._decode, self._push)
        except RecordFailed as failed:
            return self._judge(failed, failures)
        self._advance(last)
        return None

    def _run_carefully(self, limit: int, failures: Failures) -> Verdict | None:
        """As `run_slice`, looking out for condemned records: only while there are any."""
        condemned = self.task.condemned[self.partition]
        for _ in range(limit):
            record = next(self._records, None)
            if record is None:
                self._advance(None)
                return None
            reason = condemned.get(record.offset)
            if reason is not None:
                failures.put_aside(self.task, self.partition, record, reason)
                self._advance(record)
                continue
            try:
                run(iter((record,)), 1, self._decode, self._push)
            except RecordFailed as failed:
                verdict = self._judge(failed, failures)
                if verdict is not None:
                    return verdict
            self._advance(record)
        return None

    def _judge(self, failed: RecordFailed, failures: Failures) -> Verdict | None:
        verdict = failures.judge(self.task, self.partition, failed)
        if verdict is not Verdict.SET_ASIDE:
            return verdict
        self._advance(failed.record)
        return None

    def _advance(self, last: LogRecord | None) -> None:
        """Move the task's position behind `last`, or to the batch's end when there is nothing left."""
        task = self.task
        if last is None:
            task.positions[self.partition] = self._next_offset
            self.done = True
        else:
            task.positions[self.partition] = last.offset + 1
        task.moved = True


def _from_offset(records: Iterator[LogRecord], first_offset: int) -> Iterator[LogRecord]:
    """The records from `first_offset` on; only a batch entered in its middle has others."""
    for record in records:
        if record.offset >= first_offset:
            return join((record,), records)
    return iter(())
