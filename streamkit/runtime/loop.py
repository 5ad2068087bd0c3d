"""loop: what a worker does, round after round. Read `run_once` first; each line names the file that tells more.

One per worker: one event loop, one group membership, one writer. All its tasks stand at a batch boundary when a
span is committed, so one transaction covers them all.
"""

import asyncio
import math
from collections.abc import Mapping
from functools import partial

import structlog

from streamkit.errors import DataRefused, EncodeError, Fenced, Retry, StateCorrupt
from streamkit.graph.stage import Input, Stage
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.assign import Roster
from streamkit.runtime.blocked import BlockedOutputs
from streamkit.runtime.commit import Committer
from streamkit.runtime.failed_commits import FailedCommits
from streamkit.runtime.local import LocalShuffles, Way
from streamkit.runtime.output_topics import OutputTopics
from streamkit.runtime.parts import Parts
from streamkit.runtime.pauses import Pauses
from streamkit.runtime.persist import Persistence
from streamkit.runtime.poll import Intakes
from streamkit.runtime.pulse import Pulse
from streamkit.runtime.refusals import Refusals
from streamkit.runtime.retire import Retirement
from streamkit.runtime.retries import Backoff, retried
from streamkit.runtime.rhythm import BUSY_POLL_S, IDLE_POLL_S, Rhythm, now_s
from streamkit.runtime.turns import Turns
from streamkit.runtime.watch import Watch
from streamkit.runtime.writer_life import WriterLife
from streamkit.task.clocks import clocks_of
from streamkit.task.emit import Lane
from streamkit.task.engine import Engine
from streamkit.task.failures import Verdict
from streamkit.task.ingest import Intake
from streamkit.task.span_end import SpanEndFailed
from streamkit.task.task import Life, Task
from streamkit.task.time_rules import rules_of

log = structlog.get_logger()


class WorkerLoop:
    """Runs the tasks of one worker until it is told to stop."""

    def __init__(self, parts: Parts) -> None:
        loop = asyncio.get_running_loop()
        clocks = clocks_of(parts.now_ms, lambda: int(loop.time() * 1000))
        self._parts = parts
        self._settings = parts.settings
        self._reader = parts.log.reader(committed=True)
        self._pauses = Pauses(self._reader)
        self._rules = rules_of(parts.plan, parts.settings, clocks)
        engine = Engine(parts.plan, self._rules, parts.writer, parts.partition_counts, parts.limits)
        self._engine = engine
        self._failures = engine.failures
        self._topics = OutputTopics(parts.plan, engine, parts.log.admin())
        self._refusals = Refusals(engine.failures)
        self.committer = Committer(parts.writer, engine)
        self._persistence = Persistence(parts.storage, parts.settings)
        written = engine.routes.written
        self._retirement = Retirement(parts.log, parts.plan.group, written, engine.routes.read)
        self.roster = Roster(
            parts.plan, parts.log, self._persistence, parts.settings, self._retirement, self._make_task
        )
        self.blocked = BlockedOutputs(
            parts.log.admin(), written, self._sweep, parts.settings.transaction_timeout_s
        )
        self._pulse = Pulse(self.roster, parts.log.admin(), engine)
        self._intakes = Intakes(self._reader, self.roster, engine)
        self._backoff = Backoff(parts.settings)
        self._writer_life = WriterLife(parts, self._retirement, self._backoff)
        self._failed_commits = FailedCommits(parts.settings, self.committer, self._refusals)
        self._is_transactional = parts.settings.guarantee == "exactly_once"
        self._rhythm = Rhythm(parts.settings, self.committer, engine.outbox)
        self.local = LocalShuffles(
            self._local_lanes(), self.roster, self.committer, self._pauses, parts.log.admin()
        )
        self._turns = Turns(
            self.local, self._intakes, self._refusals, parts.settings.slice_records, clocks.elapsed_ms
        )
        self.watch = Watch(parts.settings.processing_max_s, parts.membership, parts.losses, self._is_past)
        self._stopping = False

    def _make_task(self, task_id: TaskId, stage: Stage, inputs: Mapping[TopicPartition, Input]) -> Task:
        task = self._engine.make(task_id, stage, inputs)
        self._parts.losses.remind(task)
        return task

    def _is_past(self, partition: TopicPartition, offset: int) -> bool:
        """Whether a record of ours is committed, and needs no counting any more; also asked from the watch's thread."""
        task = self.roster.owner_of.get(partition)
        return task is not None and task.committed.get(partition, 0) > offset

    def _local_lanes(self) -> dict[str, Lane]:
        """The shuffles that may be handed over: only a transaction commits both of their ends together."""
        if not self._settings.local_shuffle or not self._is_transactional or self._parts.losses.was_handed:
            return {}
        shuffles = self._parts.plan.shuffles()
        return {topic: self._engine.outbox.lane(topic, count or 0) for topic, count in shuffles.items()}

    def stop(self) -> None:
        """Finish the span, commit, leave the group; `run` then returns."""
        self._stopping = True

    async def run(self) -> None:
        """Process until `stop`; what may be tried again is tried again here.

        Raises:
            Misconfigured, Bug: a person must act.
        """
        try:
            await self._writer_life.open()
            while not self._stopping:
                try:
                    await self.run_once()
                except Fenced as error:
                    self._failed_commits.joining_again(error, **self.watch.last_hold())
                    await self._give_up()
                    await self._failed_commits.pause()
                except DataRefused as error:
                    await self._narrow(error)
                except StateCorrupt as error:
                    self.roster.damages.found(error, self.roster.tasks.values())
                    await self._recover()
                except Retry as error:  # a commit in doubt, or a disk that is full
                    self._failed_commits.going_back(error)
                    await self._recover()
            await self._drain()
        finally:
            await self._close()

    async def run_once(self) -> None:
        """Move one slice of records from the broker into the open span, and end the span when it is due."""
        await self._assign()  # assign.py   tasks arrive and leave
        intake = await self._poll()  # poll.py     committed bytes; a full buffer stops fetching
        if intake is not None:
            await self._run(intake)  # ingest.py   -> heads.py -> chain.py -> emit.py; failures.py
        await self._let_time_pass()  # pulse.py    timers, idleness, the end of bounded input
        if self._span_is_due():
            await self._commit()  # commit.py   state, output and positions, or none of them
        self._persistence.follow(self.roster.states)  # persist.py  what is committed goes to disk

    # -- the steps ------------------------------------------------------------------------------------------------

    async def _assign(self) -> None:
        roster = self.roster
        if self._parts.membership.rejoin_needed or not roster.joined:
            await self._rejoin()
        elif not roster.declined.is_told and not roster.restoring:
            await self._rejoin()  # others may be able to run what we cannot
        roster.declined.require_runner(now_s(), is_working=bool(roster.tasks))
        if roster.restoring:
            roster.start_ready(self._engine.start, self._pauses)
            for task in self._refusals.take_stopped(roster.running()):
                self._stop_for_a_while(task)
        roster.wake(now_s(), self._pauses)
        self.local.follow()
        self.blocked.follow(now_s())
        if not self.committer.busy:
            await self._writer_life.look_after()

    async def _poll(self) -> Intake | None:
        if self._persistence.is_full:
            await self._persistence.wait_for_room(IDLE_POLL_S)
            return None
        if (waiting := await self._turns.next()) is not None:
            if self._intakes.are_quick:
                self.local.begin(now_s())
            return waiting
        if self.local.way is Way.GATHERING:
            await self.committer.settle()  # what it has written is read before shuffles go by memory
        elif self._intakes.calm:
            is_local = self.local.way is Way.LOCAL
            await self._rhythm.rest(hops=0 if is_local else len(self._parts.plan.shuffles()))
        self.local.choose(now_s())
        is_busy = self.local.is_changing or self.roster.restoring or self._pulse.is_hurried
        return await self._intakes.poll(BUSY_POLL_S if is_busy else IDLE_POLL_S)

    async def _run(self, intake: Intake) -> None:
        if not self._rhythm.is_span_open:
            self._rhythm.begin_span()
            self._engine.begin_span(self._parts.now_ms())
        self._bound_span()
        if (failed := self._turns.run(intake)) is not None:  # turns.py    bounded by number and by time
            await self._obey(*failed)
        await asyncio.sleep(0)  # replies get their turn between two slices

    async def _let_time_pass(self) -> None:
        self._failures.log.sum_up()
        if not self._rules.is_timed or self._refusals.is_full:
            return
        if not self._rhythm.is_span_open:
            self._engine.begin_span(self._parts.now_ms())
        self._bound_span()
        failed = self._pulse.beat(now_s(), lambda: self._refusals.is_full)
        if failed is not None:
            await self._obey(*failed)
        elif self.roster.is_finished:
            log.info("all input has ended")
            self.stop()
        elif self._pulse.is_hurried:
            await asyncio.sleep(0)  # timers took their turn

    async def _commit(self) -> None:
        self._rhythm.end_span()
        await self.committer.settle()
        await self._writer_life.look_after()
        try:
            for tasks in self.roster.running_by_stage():
                await self._run_handed()
                for task in tasks:
                    for _ in self._engine.finish(task):
                        await asyncio.sleep(0)
            self.committer.begin(self.roster.running(), self.roster.assignment.member)
            self._refusals.sent()
        except SpanEndFailed as failed:
            log.warning("a span could not be ended", task=str(failed.task.id), error=str(failed))
            await self._rewind(failed.task, failed.verdict)
        if self._refusals.is_searching:
            await self.committer.settle()
            self._refusals.landed(self.roster.owner_of, now_s(), is_hurried=self._pulse.is_hurried)
        self._persistence.keep_within_memory(self.roster.states(), self._engine.outbox.caches)

    async def _run_handed(self) -> None:
        """Run all that was handed over: both ends of a local shuffle are committed together."""
        while self.local.current() is not None:
            if (failed := self._turns.run_handed()) is not None:
                raise SpanEndFailed(*failed)
            await asyncio.sleep(0)

    def _span_is_due(self) -> bool:
        has_moved = any(task.moved for task in self.roster.running())
        is_due = self._refusals.is_full or self._rhythm.is_due(is_drained=self._turns.waiting() is None)
        return has_moved and is_due

    def _bound_span(self) -> None:
        """While spans are bounded: know what a span holds, and let nothing go past the broker."""
        if self._refusals.is_searching:
            self._refusals.watch(self.roster.running())
            self.local.leave(now_s() + self._settings.restart_delay_last_s)

    # -- going back -----------------------------------------------------------------------------------------------

    async def _obey(self, failed: Task, verdict: Verdict) -> None:
        """Do what the error policy says about a failure."""
        if verdict is not Verdict.WAIT:
            await self._rewind(failed, verdict)
            return
        # Nobody may hand it anything while it waits.
        self.local.leave(now_s() + self._settings.restart_delay_last_s)
        await self._commit()
        if failed.life is Life.RUNNING:
            self._intakes.drop({failed})
            self._stop_for_a_while(failed)

    async def _rewind(self, failed: Task, verdict: Verdict) -> None:
        """Drop the open span of all tasks and read it again; the failed task may have to wait first."""
        await self.committer.settle()
        self._forget_span()
        # By then the failed record, read from a topic, has had its tries; and who fails often loses little by it.
        self.local.leave(now_s() + self._settings.restart_delay_last_s)
        for task in list(self.roster.running()):
            # What fails in one partition fails in others too, and each first failure would cost a span of all.
            task.book.is_suspect = task.book.is_suspect or (
                failed.book.is_suspect and task.stage is failed.stage
            )
            self._engine.rewind(task)
            if task is failed and verdict is not Verdict.RUN_AGAIN:
                self._stop_for_a_while(task)
            else:
                self.roster.seek(task, self._pauses)

    def _stop_for_a_while(self, task: Task) -> None:
        for partition in task.inputs:
            self._reader.forget(partition)
        delay_s = self._failures.delay_s(task, self._settings)
        task.wake_at = now_s() + delay_s
        task.move(Life.WAITING)
        self._failures.tell_wait(task, delay_s)

    async def _narrow(self, refused: DataRefused) -> None:
        """The broker does not take what a span holds: go by what its topics say now, or else look for it."""
        await self.committer.abandon()
        if not await self._topics.look_again():
            self._refusals.refused(refused, self.committer.sent, now_s())
        await self._go_back()  # positions are not in doubt: none of this span's are on their way

    async def _recover(self) -> None:
        """A new writer id, then every task learns from its commit record what has landed.

        Positions that are still on their way to the broker would move the group back later. The retired id refuses them,
        or where there is no transaction, a new generation of the group.
        """
        await self.committer.abandon()
        self._forget_span()
        await self._failed_commits.pause()
        await self._topics.look_again()
        if self._is_transactional:
            await self._go_back()
        else:
            await self._give_up()

    async def _go_back(self) -> None:
        self._forget_span()
        await self._writer_life.open()
        for task in list(self.roster.tasks.values()):
            if task.life in (Life.RUNNING, Life.WAITING):
                for partition in task.inputs:
                    self._reader.forget(partition)
                self.roster.restore(task, self._pauses)

    async def _give_up(self) -> None:
        """Somebody else owns our tasks: forget them all; the loop joins again, then takes a new writer id."""
        await self.committer.abandon()
        self._forget_span()
        if self.roster.joined:
            self._writer_life.is_open = False
            await self.roster.close_all(self._pauses)

    async def _sweep(self) -> None:
        await self._retirement.sweep(
            lambda: self.roster.assignment.live_writers if self.roster.joined else None
        )

    def _forget_span(self) -> None:
        self.local.drop()
        self._engine.drop()
        self._intakes.drop()
        self._refusals.drop()
        self._rhythm.end_span()

    # -- the group ------------------------------------------------------------------------------------------------

    async def _rejoin(self) -> None:
        """Commit what is open, take part in the next round, and take over what it brings."""
        membership, roster = self._parts.membership, self.roster
        if membership.lost and roster.joined:
            log.warning("this worker is not a member of the group any more", **self.watch.last_hold())
        if membership.lost or not roster.joined:
            await self._give_up()
            if self._parts.losses.was_handed:
                self.local.leave(math.inf)  # read from its topic, the record has a place to be counted by
        else:
            await self._commit()
            await self.committer.settle()
        claim = partial(membership.join, list(roster.tasks), list(roster.declined.tasks))
        assignment = await retried("joining the group", self._backoff, claim)
        self._parts.names.duplicates.look(assignment.live_writers)
        if not self._writer_life.is_open:
            await self._writer_life.open()
        before = set(roster.tasks.values())
        await roster.take(assignment, self._pauses)
        self._intakes.drop(before - set(roster.tasks.values()))

    # -- the end --------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """The clean end: what was processed is committed, the others learn at once that we left."""
        if self.roster.joined and not self._parts.membership.lost:
            try:
                await self._commit()
                await self.committer.settle()
            except (Fenced, Retry, EncodeError, StateCorrupt) as error:
                log.warning("the last span was not committed; it will be read again", error=str(error))

    async def _close(self) -> None:
        await self.committer.cancel()
        self._failures.log.end()
        await self._pulse.stop()
        await self.blocked.stop()
        await self.local.stop()
        await self.roster.close_all(self._pauses)
        await self._parts.membership.leave()
        await self._reader.close()
        await self._parts.writer.close()
        await self._persistence.end()
