"""failures: what happens to a record that cannot be read or processed, by the pipeline's policy.

Three outcomes. On the spot: nothing of the record had an effect yet, so it is set aside and the loop goes on.
Condemned: it may have changed state or written output, so the whole span is dropped, and when the record is reached
again it is set aside without being run. Failed: the task stops and is tried again later; the others go on.
"""

import traceback
from enum import Enum

import msgspec
import structlog

from streamkit.config import Settings
from streamkit.errors import EncodeError, StreamkitError
from streamkit.graph.policy import ErrorPolicy
from streamkit.kafka.records import Headers, LogRecord, Unreadable
from streamkit.model.ids import TopicPartition
from streamkit.progress.task_clock import TimerFailed
from streamkit.runtime.align import DECODE
from streamkit.runtime.chain import RecordFailed, failing_step
from streamkit.runtime.emit import NO_HEADERS, Lane
from streamkit.runtime.task import Condemned, Place, Task
from streamkit.state.timers import Timer

log = structlog.get_logger()

# A header holds at most this much of a traceback: the end is what tells.
TRACEBACK_CHARACTERS_MAX = 4000
# A letter whose value is left out says so in this header, with the size; of its key this much is kept.
TOO_LARGE = "streamkit.too-large"
LETTER_KEY_BYTES_MAX = 10_000
# One that stands for a stretch of a topic says where that ends, and how many bytes of it nobody can read.
NEXT_OFFSET = "streamkit.next-offset"
UNREADABLE = "streamkit.unreadable"


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
        self.set_aside = 0

    def judge(self, task: Task, partition: TopicPartition, failed: RecordFailed) -> Verdict:
        """Decide about a record on which the chain raised; acts at once where nothing has to be undone."""
        reason = _reason(failed.step, failed.cause)
        if not self._is_given_up(task, (partition, failed.record.offset), reason):
            return Verdict.STOP_TASK
        is_clean = failed.step in task.chain.clean_steps
        if not is_clean or self._policy.retries:
            # With retries also a clean one: another record's retry drops the span, and this one must not begin anew.
            task.condemned.setdefault(partition, {})[failed.record.offset] = reason
        if not is_clean:
            return Verdict.RUN_AGAIN
        self.put_aside(task, partition, failed.record, reason)
        return Verdict.SET_ASIDE

    def judge_stretch(self, task: Task, partition: TopicPartition, stretch: Unreadable) -> Verdict:
        """Decide about a stretch of a source that nobody can read; its letter has its place, not its bytes."""
        reason = Condemned(DECODE, stretch.reason, "")
        if not self._is_given_up(task, (partition, stretch.offset), reason):
            return Verdict.STOP_TASK
        self.set_aside += 1
        is_skipped = self._policy.action == "skip"
        log.warning(
            "a part of a topic cannot be read",
            outcome="skipped" if is_skipped else "dead letter",
            task=str(task.id),
            at=f"{partition}@{stretch.offset}",
            up_to=stretch.next_offset,
            error=stretch.reason,
        )
        if not is_skipped:
            headers: list[tuple[str, bytes | None]] = [
                ("streamkit.topic", partition.topic.encode()),
                ("streamkit.partition", b"%d" % partition.partition),
                ("streamkit.offset", b"%d" % stretch.offset),
                (NEXT_OFFSET, b"%d" % stretch.next_offset),
                (UNREADABLE, b"%d" % stretch.size_bytes),
                *_reason_headers(task, reason),
            ]
            self._write(partition.partition, None, None, stretch.timestamp, headers)
        return Verdict.SET_ASIDE

    def judge_held(self, task: Task, key: bytes | None, cause: Exception) -> Verdict:
        """Decide about a result that was held back until the end of the span and then could not be sent on."""
        reason = _reason(failing_step(cause), cause)
        if not self._is_given_up(task, key, reason):
            return Verdict.STOP_TASK
        task.muted[key] = reason
        return Verdict.RUN_AGAIN

    def judge_timer(self, task: Task, failed: TimerFailed) -> Verdict:
        """Decide about a timer whose step raised; what it had done is undone with the span."""
        what = (failed.store, failed.timer)
        reason = _reason(failing_step(failed.cause), failed.cause)
        if not self._is_given_up(task, what, reason):
            return Verdict.STOP_TASK
        task.condemned_timers[what] = reason
        return Verdict.RUN_AGAIN

    def judge_tick(self, task: Task, cause: Exception) -> Verdict:
        """Decide about a watermark generator that raised at a tick: no record is to blame, so the task waits."""
        log.error(
            "the watermark generator failed: the task waits",
            task=str(task.id),
            error=f"{type(cause).__name__}: {cause}",
        )
        task.failures += 1
        return Verdict.STOP_TASK

    def put_timer_aside(self, task: Task, store: str, timer: Timer) -> bool:
        """Set a condemned timer aside instead of firing it; False if it is none."""
        reason = task.condemned_timers.get((store, timer))
        if reason is None:
            return False
        self.set_aside += 1
        task.timers_set_aside.add((store, timer))
        log.warning("timer failed", task=str(task.id), step=reason.step, time=timer.time, error=reason.error)
        if self._policy.action != "skip":
            headers = [("streamkit.timestamp", b"%d" % timer.time), *_reason_headers(task, reason)]
            self._write(task.id.partition, timer.key, None, timer.time, headers)
        return True

    def _is_given_up(
        self, task: Task, what: Place | tuple[str, Timer] | bytes | None, reason: Condemned
    ) -> bool:
        """Count one more failure; whether the policy's patience is at its end and the record may be set aside."""
        if self._policy.action == "fail":
            log.error(
                "the pipeline's policy is to fail: the task stops", task=str(task.id), error=reason.error
            )
            task.failures += 1
            return False
        attempts = task.attempts[what] = task.attempts.get(what, 0) + 1
        if reason.step == DECODE or attempts > self._policy.retries:
            return True
        task.failures = attempts  # of this very record: the next one begins with the first delay again
        return False

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
            *_reason_headers(task, reason),
        ]
        self._write(partition.partition, record.key, record.value, record.timestamp, headers, record.headers)

    def put_result_aside(self, task: Task, key: bytes | None, value: object, timestamp: int) -> None:
        """As `put_aside`, for a muted result: there is no one record behind it, so its value is shown as JSON."""
        reason = task.muted[key]
        self.set_aside += 1
        log.warning("result failed", task=str(task.id), step=reason.step, error=reason.error)
        if self._policy.action != "skip":
            headers = [("streamkit.timestamp", b"%d" % timestamp), *_reason_headers(task, reason)]
            self._write(task.id.partition, key, _as_json(value), timestamp, headers)

    def _write(
        self,
        number: int,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
        carried: Headers = NO_HEADERS,
    ) -> None:
        """Write a letter; one that its topic would refuse without what makes it large: that stands where it came from."""
        index = number % len(self._letters.batches)
        try:
            self._letters.add(index, key, value, timestamp, [*headers, *carried])
        except EncodeError:
            size = len(key or b"") + len(value or b"")
            short = key if key is not None and len(key) <= LETTER_KEY_BYTES_MAX else None
            self._letters.add(index, short, None, timestamp, [*headers, (TOO_LARGE, b"%d" % size)])

    def delay_s(self, task: Task, settings: Settings) -> float:
        """How long a task waits before its record is tried again."""
        first_s = settings.restart_delay_first_s if self._policy.action == "fail" else self._policy.delay_s
        return float(min(settings.restart_delay_last_s, first_s * 2 ** min(task.failures - 1, 30)))


def _reason(step: str, cause: Exception) -> Condemned:
    text = "".join(traceback.format_exception(cause)) if step != DECODE else ""
    message = str(cause) if isinstance(cause, StreamkitError) else f"{type(cause).__name__}: {cause}"
    return Condemned(step, message[:1000], text[-TRACEBACK_CHARACTERS_MAX:])


def _reason_headers(task: Task, reason: Condemned) -> list[tuple[str, bytes | None]]:
    return [
        ("streamkit.stage", task.id.stage.encode()),
        ("streamkit.step", reason.step.encode()),
        ("streamkit.error", reason.error.encode()),
        ("streamkit.traceback", reason.traceback.encode()),
    ]


def _as_json(value: object) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return repr(value).encode()


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
