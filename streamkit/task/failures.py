"""failures: what happens to a record that cannot be read or processed, by the pipeline's policy.

On the spot: nothing of the record has an effect, because it failed before it could have one or because its task is careful
(`task/careful.py`) and has undone it. Then it is set aside and the loop goes on, or what came before it is committed and
the task waits at it. Else the whole span is dropped and read again carefully; a record that is to be set aside is
condemned, and not run a second time.
"""

from collections.abc import Callable
from enum import Enum

import structlog

from streamkit.config import Settings
from streamkit.errors import DataRefused, EncodeError, Misconfigured, UserCodeError, said
from streamkit.graph.policy import ErrorPolicy
from streamkit.model.counts import DEAD_LETTERS
from streamkit.model.ids import TopicPartition
from streamkit.model.records import LogRecord, Unreadable
from streamkit.progress.task_clock import TimerFailed
from streamkit.state.timers import StoredTimer
from streamkit.task.chain import RecordFailed, failing_step
from streamkit.task.failure_book import Condemned, Key, Unit, Wait
from streamkit.task.failure_log import FailureLog
from streamkit.task.letters import Letters, reason_of
from streamkit.task.outside import COMMIT, DECODE, STATE, WATERMARKS
from streamkit.task.task import Task

log = structlog.get_logger()


class Verdict(Enum):
    """What the loop must do after a failed record."""

    SET_ASIDE = "set aside"
    RUN_AGAIN = "run the span again"
    WAIT = "commit what came before, then wait"
    STOP_TASK = "stop the task for a while"


class Failures:
    """Applies one error policy and writes dead letters into the span."""

    def __init__(self, policy: ErrorPolicy, letters: Letters, now_ms: Callable[[], int]) -> None:
        self._policy = policy
        self._letters = letters
        self.log = FailureLog(now_ms)

    def judge(self, task: Task, partition: TopicPartition, failed: RecordFailed) -> Verdict:
        """Decide about a record on which the chain raised; acts at once where nothing has to be undone."""
        reason = reason_of(failed.step, failed.cause)
        is_undone = task.careful is not None or failed.step in task.chain.clean_steps
        place = (partition, failed.record.offset)
        if reason.is_lasting and self._policy.retries and task.careful is None:
            return _run_again(
                task
            )  # it need not wait, and is judged when the records before it are known to be sound
        if not self._is_given_up(task, place, reason):
            return self._patience(task, reason, f"{partition}@{failed.record.offset}", is_undone=is_undone)
        if not is_undone or self._policy.retries:
            # With retries also one that is undone: if the span is dropped for another, it must not begin anew.
            task.book.condemn_record(partition, failed.record.offset, reason)
        if not is_undone:
            return _run_again(task)
        if failed.step == STATE and not self._policy.retries:
            task.book.acquit()
        self.put_aside(task, partition, failed.record, reason)
        return Verdict.SET_ASIDE

    def judge_stretch(self, task: Task, partition: TopicPartition, stretch: Unreadable) -> Verdict:
        """Decide about a stretch of a source that nobody can read; its letter has its place, not its bytes."""
        reason = Condemned(DECODE, stretch.reason, "")
        at = f"{partition}@{stretch.offset}"
        if not self._is_given_up(task, (partition, stretch.offset), reason):
            return self._patience(task, reason, at, is_undone=True)
        self._count(task)
        is_skipped = self._policy.action == "skip"
        outcome = "skipped" if is_skipped else "dead letter"
        self.log.tell_set_aside(
            "a part of a topic cannot be read",
            task,
            reason,
            outcome=outcome,
            at=at,
            up_to=stretch.next_offset,
        )
        if not is_skipped:
            self._letters.of_stretch(task.id, partition, stretch, reason)
        return Verdict.SET_ASIDE

    def judge_lie(self, task: Task) -> Verdict:
        """Decide about a slice in which a record stops and some offset is wrong: nobody can say where the task would go on.

        The careful run takes what lies for what cannot be read.
        """
        return _run_again(task)

    def judge_held(self, task: Task, key: bytes | None, cause: BaseException) -> Verdict:
        """Decide about a result that was held back until the end of the span and then could not be sent on."""
        reason = reason_of(_step(cause), cause)
        if not self._is_given_up(task, key, reason):
            # What came before it is the state that it was made of: they are committed together.
            self._patience(task, reason, f"the result of key {key!r}", is_undone=True)
            return Verdict.STOP_TASK
        task.book.muted[key] = reason
        return Verdict.SET_ASIDE if task.careful is not None else _run_again(task)

    def judge_timer(self, task: Task, failed: TimerFailed) -> Verdict:
        """Decide about a timer whose step raised; one that was undone comes due again, and is set aside then."""
        what = (failed.store, failed.timer)
        reason = reason_of(_step(failed.cause), failed.cause)
        if not self._is_given_up(task, what, reason):
            place = f"timer {failed.timer.time} of key {failed.timer.key!r}"
            return self._patience(task, reason, place, is_undone=task.careful is not None)
        task.book.timers[what] = reason
        return Verdict.SET_ASIDE if task.careful is not None else _run_again(task)

    def judge_refusal(self, task: Task, unit: Unit, cause: DataRefused) -> bool:
        """Decide about a record or a timer whose results the broker refused, often enough by now.

        True: it is condemned. False: the policy is to fail, and its task has to wait.
        """
        reason = Condemned(COMMIT, str(cause), "")
        where, what = unit
        if not self._is_given_up(task, unit, reason):
            self._patience(task, reason, f"{where} {what}", is_undone=True)
            return False
        task.book.condemn(unit, reason)
        return True

    def judge_rows(self, task: Task, what: str, cause: EncodeError) -> Verdict:
        """Decide about a span whose rows cannot be written: the careful run finds the record that made it so.

        Raises:
            Misconfigured: it has found none, so nothing but a person can change it.
        """
        if task.careful is None:
            return _run_again(task)
        raise Misconfigured(
            f"{what} of task {task.id} cannot be written, and no record is to blame",
            where=cause.where,
            detail=f"{cause.problem}\n{cause.detail}".rstrip(),
            hint=cause.hint,
        ) from cause

    def judge_tick(self, task: Task, cause: BaseException) -> Verdict:
        """Decide about a watermark generator that raised at a tick: no record is to blame, so the task waits."""
        log.error("the watermark generator failed: the task waits", task=str(task.id), error=said(cause))
        task.book.in_a_row += 1
        task.book.wait = Wait("a tick of the watermark generator", reason_of(WATERMARKS, cause))
        return Verdict.STOP_TASK

    def _is_given_up(self, task: Task, what: Unit | Key, reason: Condemned) -> bool:
        """Count one more failure; whether the policy's patience is at its end and the record may be set aside."""
        if self._policy.action == "fail":
            return False
        attempts = task.book.attempts[what] = task.book.attempts.get(what, 0) + 1
        # Only where each record is looked at alone: else it may be made of what one before it has spoilt.
        is_sure = reason.is_lasting and task.careful is not None
        is_lasting = is_sure or reason.step in (DECODE, COMMIT)
        if is_lasting or attempts > self._policy.retries:
            return True
        task.book.in_a_row = attempts  # of this very record: the next one begins with the first delay again
        return False

    def _patience(self, task: Task, reason: Condemned, at: str, *, is_undone: bool) -> Verdict:
        """The record stays where it is and is tried again later."""
        if self._policy.action == "fail":
            if not is_undone:
                return _run_again(task)  # what came before it can then be committed
            task.book.in_a_row += 1
        task.book.wait = Wait(at, reason) if task.book.wait is None else task.book.wait.again(at, reason)
        if self._policy.action == "fail":
            _tell_stuck(task, task.book.wait)
        if is_undone:
            return Verdict.WAIT
        task.book.is_suspect = True
        return Verdict.STOP_TASK

    def put_aside(self, task: Task, partition: TopicPartition, record: LogRecord, reason: Condemned) -> None:
        """Write the dead letter into the span, or only count it when the policy says skip.

        Raises:
            RecordFailed: the policy is to fail; it is not run, but not passed over either.
        """
        if self._policy.action == "fail":
            raise RecordFailed(record, reason.step, UserCodeError(reason.error))
        at = f"{partition}@{record.offset}"
        self._count(task)
        if self._policy.action == "skip":
            self.log.tell_set_aside(
                "record failed", task, reason, outcome="skipped", at=at, traceback=reason.traceback
            )
        else:
            self.log.tell_set_aside("record failed", task, reason, outcome="dead letter", at=at)
            is_shuffled = any(
                each.topic == partition.topic and each.kind == "shuffle" for each in task.stage.inputs
            )
            self._letters.of_record(task.id, partition, record, reason, is_shuffled=is_shuffled)

    def stops_at(self, task: Task, key: bytes | None, reason: Condemned) -> bool:
        """Whether the policy is to fail, so that a task has to wait at a condemned result."""
        if self._policy.action != "fail":
            return False
        self._patience(task, reason, f"the result of key {key!r}", is_undone=True)
        return True

    def put_result_aside(
        self, task: Task, reason: Condemned, key: bytes | None, value: object, timestamp: int
    ) -> None:
        """As `put_aside`, for a result that was held back."""
        self._count(task)
        self.log.tell_set_aside("result failed", task, reason)
        if self._policy.action != "skip":
            self._letters.of_result(task.id, key, value, timestamp, reason)

    def put_timer_aside(self, task: Task, store: str, timer: StoredTimer) -> bool:
        """Set a condemned timer aside instead of firing it; False if it is none."""
        reason = task.book.timers.get((store, timer))
        if reason is None:
            return False
        if self._policy.action == "fail":
            raise UserCodeError(reason.error)  # it is not fired, but not passed over either
        self._count(task)
        task.book.timers_set_aside.add((store, timer))
        self.log.tell_set_aside("timer failed", task, reason, time=timer.time)
        if self._policy.action != "skip":
            self._letters.of_timer(task.id, timer, reason)
        return True

    def _count(self, task: Task) -> None:
        task.clock.counts[DEAD_LETTERS] += 1
        if task.careful is not None:
            task.careful.keep(DEAD_LETTERS)

    def tell_wait(self, task: Task, delay_s: float) -> None:
        """Say that a task waits, and at what; also of tasks that wait again and again."""
        wait = task.book.wait or Wait("", Condemned("", "", ""))
        seconds = round(delay_s, 3)
        self.log.tell(
            "task waits", task, wait.reason, at=wait.at, seconds=seconds, failures=task.book.in_a_row
        )

    def delay_s(self, task: Task, settings: Settings) -> float:
        """How long a task waits before its record is tried again."""
        first_s = settings.restart_delay_first_s if self._policy.action == "fail" else self._policy.delay_s
        return float(
            min(settings.restart_delay_last_s, first_s * 2 ** min(max(task.book.in_a_row - 1, 0), 30))
        )


def _step(cause: BaseException) -> str:
    """The step in which a result or a timer failed; they are not decoded, so what no step raised came of their state."""
    step = failing_step(cause)
    return STATE if step == DECODE else step


def _tell_stuck(task: Task, wait: Wait) -> None:
    """Say what a task waits at for a person: in full at first, then shortly and more and more seldom."""
    if wait.times & (wait.times - 1):
        return
    reason = wait.reason
    fields = {"line": reason.line} if reason.line else {}
    more = {"traceback": reason.traceback} if wait.times == 1 else {"failures": wait.times}
    log.error(
        "the pipeline's policy is to fail: the task waits at this record",
        task=str(task.id),
        at=wait.at,
        step=reason.step,
        error=reason.error,
        **fields,
        **more,
    )


def _run_again(task: Task) -> Verdict:
    """Drop the span, and be careful when it is read again."""
    task.book.is_suspect = True
    return Verdict.RUN_AGAIN
