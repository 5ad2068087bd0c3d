"""failures: what happens to a record that cannot be read or processed, by the pipeline's policy.

Three outcomes. On the spot: nothing of the record had an effect yet, so it is set aside and the loop goes on.
Condemned: it may have changed state or written output, so the whole span is dropped, and when the record is reached
again it is set aside without being run. Failed: the task stops and is tried again later; the others go on.
"""

import traceback
from enum import Enum

import structlog

from streamkit.config import Settings
from streamkit.errors import StreamkitError
from streamkit.graph.policy import ErrorPolicy
from streamkit.kafka.ports import LogRecord
from streamkit.model.ids import TopicPartition
from streamkit.runtime.chain import DECODE, RecordFailed
from streamkit.runtime.emit import Lane
from streamkit.runtime.task import Condemned, Task

log = structlog.get_logger()

# A header holds at most this much of a traceback: the end is what tells.
TRACEBACK_CHARACTERS_MAX = 4000


class Verdict(Enum):
    """What the loop must do after a failed record."""

    SET_ASIDE = "set aside"
    RUN_AGAIN = "run the span again"
    STOP_TASK = "stop the task for a while"


class Failures:
    """Applies one error policy and writes dead letters into the span."""

    def __init__(self, policy: ErrorPolicy, letters: Lane) -> None:
        self._policy = policy
        self._letters = letters
        self._attempts: dict[tuple[TopicPartition, int], int] = {}
        self.set_aside = 0

    def judge(self, task: Task, partition: TopicPartition, failed: RecordFailed) -> Verdict:
        """Decide about a record on which the chain raised; acts at once where nothing has to be undone."""
        reason = _reason(failed)
        place = (partition, failed.record.offset)
        if self._policy.action == "fail":
            _report(task, partition, failed.record, reason, "the task stops")
            return Verdict.STOP_TASK
        attempts = self._attempts[place] = self._attempts.get(place, 0) + 1
        if failed.step != DECODE and attempts <= self._policy.retries:
            return Verdict.STOP_TASK
        del self._attempts[place]
        if failed.step in task.chain.clean_steps:
            self.put_aside(task, partition, failed.record, reason)
            return Verdict.SET_ASIDE
        task.condemned.setdefault(partition, {})[failed.record.offset] = reason
        return Verdict.RUN_AGAIN

    def put_aside(self, task: Task, partition: TopicPartition, record: LogRecord, reason: Condemned) -> None:
        """Write the dead letter into the span, or only count it when the policy says skip."""
        self.set_aside += 1
        if self._policy.action == "skip":
            _report(task, partition, record, reason, "skipped")
            return
        _report(task, partition, record, reason, "dead letter")
        headers: list[tuple[str, bytes | None]] = [
            ("streamkit.topic", partition.topic.encode()),
            ("streamkit.partition", b"%d" % partition.partition),
            ("streamkit.offset", b"%d" % record.offset),
            ("streamkit.timestamp", b"%d" % record.timestamp),
            ("streamkit.stage", task.id.stage.encode()),
            ("streamkit.step", reason.step.encode()),
            ("streamkit.error", reason.error.encode()),
            ("streamkit.traceback", reason.traceback.encode()),
            *record.headers,
        ]
        index = partition.partition % len(self._letters.batches)
        self._letters.add(index, record.key, record.value, record.timestamp, headers)

    def delay_s(self, task: Task, settings: Settings) -> float:
        """How long a task waits before its record is tried again."""
        first_s = settings.restart_delay_first_s if self._policy.action == "fail" else self._policy.delay_s
        return float(min(settings.restart_delay_last_s, first_s * 2 ** min(task.failures, 30)))


def _reason(failed: RecordFailed) -> Condemned:
    cause = failed.cause
    text = "".join(traceback.format_exception(cause)) if failed.step != DECODE else ""
    message = str(cause) if isinstance(cause, StreamkitError) else f"{type(cause).__name__}: {cause}"
    return Condemned(failed.step, message[:1000], text[-TRACEBACK_CHARACTERS_MAX:])


def _report(
    task: Task, partition: TopicPartition, record: LogRecord, reason: Condemned, outcome: str
) -> None:
    log.warning(
        "record failed",
        outcome=outcome,
        task=str(task.id),
        at=f"{partition}@{record.offset}",
        step=reason.step,
        error=reason.error,
    )
