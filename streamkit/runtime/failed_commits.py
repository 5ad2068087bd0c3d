"""failed_commits: what a worker does about commits that do not land, again and again.

    waits      before it tries again, longer each time while nothing comes forward
    narrows    a commit that lasted longer than its transaction may: smaller spans, one after the other (`runtime/refusals.py`).
               No span is committed while the next is run, so no record that holds the loop keeps a transaction open
    ends       a single record whose commit takes too long each time is for a person

A broker that is away makes commits last, too, and so does another owner of our tasks: neither ends a worker.
"""

import asyncio
from collections import Counter

import structlog

from streamkit.config import Settings
from streamkit.errors import CommitTooSlow, Fenced, Misconfigured, StreamkitError, WriterDead
from streamkit.model.ids import TaskId
from streamkit.runtime.commit import Committer
from streamkit.runtime.refusals import Refusals
from streamkit.runtime.retries import Backoff, Tries
from streamkit.task.failure_book import Unit

log = structlog.get_logger()

# Commits of one and the same record that may take too long: more than a bad moment of a broker makes.
TRIES_MAX = 5


class FailedCommits:
    """Deals with commits that did not land."""

    def __init__(self, settings: Settings, committer: Committer, refusals: Refusals) -> None:
        self._settings = settings
        self._committer = committer
        self._refusals = refusals
        self._backoff, self._tries = Backoff(settings), Tries()
        self._advances = -1
        # How often a record or timer was sent alone and took too long; a span of neither, in a row: by the commits before it.
        self._alone: Counter[tuple[TaskId, Unit] | int] = Counter()

    async def pause(self) -> None:
        """Wait if nothing has come forward since the last time, for longer each time."""
        if self._committer.advances == self._advances:
            await asyncio.sleep(self._backoff.next_delay_s())
        else:
            self._backoff.reset()
        self._advances = self._committer.advances

    def going_back(self, error: StreamkitError) -> None:
        """A commit is in doubt, or a disk is full: tell of it, and look at it; see `_look_at`."""
        self._tell("going back to the commit records", error)
        self._look_at(error)

    def joining_again(self, error: Fenced, **hold: object) -> None:
        """Somebody else owns our tasks, or may; tell of it, and of the step that held the loop; see `_look_at`."""
        self._tell("the broker refused us as a former owner: joining the group again", error, **hold)
        self._look_at(error)

    def _tell(self, event: str, error: StreamkitError, **fields: object) -> None:
        self._tries.look_at(self._committer.advances)
        self._tries.tell(event, error, **fields)

    def _look_at(self, error: StreamkitError) -> None:
        """A commit has failed by this error: hold fewer records if it took too long.

        Raises:
            Misconfigured: it took too long with a single record, again and again.
        """
        took_s, self._committer.failed_after_s = self._committer.failed_after_s, 0.0
        is_slow = took_s >= self._settings.transaction_timeout_s and isinstance(error, Fenced | WriterDead)
        if not is_slow and not isinstance(error, CommitTooSlow):
            return
        if not self._refusals.is_searching:
            self._alone.clear()  # since then all has passed
        if self._refusals.is_single and isinstance(error, Fenced | CommitTooSlow):
            self._count(took_s)
        before = self._refusals.records_max
        self._refusals.narrow(self._committer.sent)
        if self._refusals.records_max == before:
            return
        log.warning(
            "a commit lasted longer than transaction_timeout_s: spans hold fewer records",
            seconds=round(took_s, 1),
            transaction_timeout_s=self._settings.transaction_timeout_s,
            batches=self._committer.batches_sent,
            records_per_span=self._refusals.records_max,
        )

    def _count(self, took_s: float) -> None:
        alone = self._refusals.sent_alone
        what = self._committer.commits if alone is None else alone
        self._alone[what] += 1
        if self._alone[what] >= TRIES_MAX:
            raise Misconfigured(
                "the commit of a single record or timer lasts longer than its transaction may",
                where="" if alone is None else _named(*alone),
                detail=f"{TRIES_MAX} times; the last one took {took_s:.1f} s with {self._committer.batches_sent} batches, "
                f"and transaction_timeout_s is {self._settings.transaction_timeout_s:g}",
                hint="set STREAMKIT_TRANSACTION_TIMEOUT_S to more (brokers allow transaction.max.timeout.ms at most), "
                "let one record have fewer results, or find out why the brokers are slow",
            )


def _named(task: TaskId, unit: Unit) -> str:
    where, what = unit
    return f"{where}@{what} of task {task}" if isinstance(what, int) else f"timer {what.time} of task {task}"
