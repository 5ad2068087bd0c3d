"""assign: tasks arrive and leave as the group decides.

A task that stays keeps running without a pause in its state. A task that arrives is restored in the background, so
that commits and the other tasks go on; its partitions are read only when it is ready.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import msgspec
import structlog

from streamkit.config import Settings
from streamkit.errors import Bug, IncompatiblePlan, Retry, StateCorrupt
from streamkit.graph.plan import Plan
from streamkit.graph.stage import Input, Stage
from streamkit.kafka.ports import Assignment, Log, StageTasks
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.progress.source_clock import SourceState
from streamkit.progress.task_clock import ClockState
from streamkit.runtime.agree import DISAGREEMENT_S, NotAgreed, terms_of
from streamkit.runtime.damage import DAMAGES_MAX, Damages, for_good
from streamkit.runtime.declined import Declined, is_newcomer
from streamkit.runtime.given_up import GivenUp
from streamkit.runtime.pauses import Pause, Pauses
from streamkit.runtime.persist import Persistence
from streamkit.runtime.restore import Ownership, Restoring, local_name
from streamkit.runtime.retire import Retirement
from streamkit.runtime.retries import Backoff, Tries
from streamkit.state.task_state import TaskState
from streamkit.task.identity import identify
from streamkit.task.task import Life, Restored, Task

log = structlog.get_logger()

# Restores that run at once: enough to fill the connection, few enough to leave the loop to running tasks.
RESTORES_AT_ONCE = 4


# (id, stage, the partitions it reads) -> a task.
MakeTask = Callable[[TaskId, Stage, Mapping[TopicPartition, Input]], Task]


class Roster:
    """The tasks that this worker has."""

    def __init__(
        self,
        plan: Plan,
        log_: Log,
        persistence: Persistence,
        settings: Settings,
        retirement: Retirement,
        make_task: MakeTask = Task,
    ) -> None:
        self._plan = plan
        self._make_task = make_task
        self._log = log_
        self._persistence = persistence
        self._settings = settings
        self._identity = identify(plan)
        self._retirement = retirement
        self.declined = Declined()
        self.damages = Damages()
        self._given_up = GivenUp()
        # Whether a task has run in this life, and whether all that were to be restored at some moment have ended well.
        self._has_run = False
        self._is_settled = False
        # Whether nobody at work ran our plan when we came.
        self._came_new = False
        self._was_begun_anew = False
        self._restoring: dict[TaskId, asyncio.Task[Restored]] = {}
        self._slots = asyncio.Semaphore(RESTORES_AT_ONCE)
        self._assignment: Assignment | None = None
        self.tasks: dict[TaskId, Task] = {}
        # Counts the changes: of which tasks there are, and which of them run.
        self.version = 0
        self.owner_of: dict[TopicPartition, Task] = {}

    @property
    def plan(self) -> Plan:
        """The resolved plan whose tasks these are."""
        return self._plan

    @property
    def assignment(self) -> Assignment:
        """What the group last decided."""
        if self._assignment is None:
            raise Bug("no assignment yet")
        return self._assignment

    @property
    def joined(self) -> bool:
        """True if there is an assignment."""
        return self._assignment is not None

    @property
    def restoring(self) -> bool:
        """True while some task is not ready yet."""
        return bool(self._restoring)

    @property
    def is_finished(self) -> bool:
        """Whether there are tasks and a commit of each says that it will never have anything to do again."""
        tasks = self.tasks.values()
        return bool(tasks) and all(task.life is Life.RUNNING and task.is_finished for task in tasks)

    def running(self) -> Iterator[Task]:
        """The tasks that are processing."""
        return (task for task in self.tasks.values() if task.life is Life.RUNNING)

    def states(self) -> Iterator[TaskState]:
        """The state of every task that has some."""
        return (task.state for task in self.tasks.values() if task.life in (Life.RUNNING, Life.WAITING))

    def running_by_stage(self) -> Iterator[list[Task]]:
        """The same, stage by stage, every stage after the stages it reads from."""
        for stage in self._plan.stages:
            yield [task for task in self.running() if task.id.stage == stage.name]

    async def take(self, assignment: Assignment, pauses: Pauses) -> None:
        """Give up what is gone, keep what stayed, and begin to restore what is new.

        A task may be kept only if nobody else can have owned it in between: same member, and the very next generation.
        """
        before, self._assignment = self._assignment, assignment
        if before is None:
            self._came_new = is_newcomer(self._identity.fingerprint, assignment.plans)
        wanted = set(assignment.tasks)
        kept = wanted if _follows(before, assignment) else set()
        await self.close([task_id for task_id in self.tasks if task_id not in kept], pauses)
        arrived = [task_id for task_id in assignment.tasks if task_id not in self.tasks]
        log.info(
            "assignment", generation=assignment.member.generation, kept=len(self.tasks), arrived=len(arrived)
        )
        self.declined.heard(assignment.stranded, asyncio.get_running_loop().time())
        for task_id in arrived:
            if not self._plan.has_task(task_id):  # told by a leader of an older release, which does not ask
                self.declined.add(task_id, _unknown(task_id))
                continue
            stage = self._plan.stage(task_id.stage)
            task = self._make_task(task_id, stage, inputs_of(stage, task_id.partition))
            self.tasks[task_id] = task
            self.owner_of.update(dict.fromkeys(task.inputs, task))
            self.restore(task, pauses)

    def restore(self, task: Task, pauses: Pauses) -> None:
        """Begin to restore a task in the background; what state it has is closed first."""
        self._give_away(task.suspend())
        for partition in task.inputs:
            pauses.hold(partition, Pause.RESTORE)
        self.version += 1
        task.move(Life.RESTORING)
        ownership = Ownership(
            group=self.assignment.member.group,
            live_writers=lambda: self.assignment.live_writers,
            retirement=self._retirement,
            terms=terms_of(self._identity, self._settings),
            state_apply_interval_s=self._settings.state_apply_interval_s,
            given_up=self._given_up,
            is_distrusted=partial(self.damages.take, task.id),
            tell_begun_anew=self._tell_begun_anew,
        )
        self._restoring[task.id] = asyncio.create_task(
            self._restore(task, ownership), name=f"restore {task.id}"
        )

    def _tell_begun_anew(self) -> None:
        """Say once that local state is discarded because a person has given it up, and not for each task."""
        if not self._was_begun_anew:
            self._was_begun_anew = True
            log.info("the pipeline was begun anew: local state from before is discarded")

    async def _restore(self, task: Task, ownership: Ownership) -> Restored:
        """Restore, again and again while the reason is a passing one."""
        backoff, tries = Backoff(self._settings), Tries()
        loop = asyncio.get_running_loop()
        disagreeing_since: float | None = None
        damages = 0
        while True:
            try:
                async with self._slots:
                    restored = await Restoring(task, self._log, self._persistence, ownership).run()
                    return await self._with_start(restored, task)
            except NotAgreed as error:
                if disagreeing_since is None:
                    disagreeing_since = loop.time()
                    log.warning(
                        "positions and committed state cannot be settled yet: looking again",
                        task=str(task.id),
                        error=str(error),
                    )
                if loop.time() - disagreeing_since >= DISAGREEMENT_S:
                    raise error.for_good() from error
                await asyncio.sleep(backoff.next_delay_s())
            except StateCorrupt as error:
                damages += 1
                await self._discard(task, error, damages)
            except Retry as error:
                disagreeing_since = None  # nobody has looked since: what disagrees later is another story
                tries.tell("restore will be tried again", error, task=str(task.id))
                await asyncio.sleep(backoff.next_delay_s())

    async def _discard(self, task: Task, error: StateCorrupt, times: int) -> None:
        """Discard local state that is not to be used, to be restored from the changelog; that may fail a few times.

        Raises:
            StateDamaged: it was a fresh store more than once.
        """
        if times > DAMAGES_MAX:
            raise for_good(error, task) from error
        log.warning("local state is discarded", task=str(task.id), error=str(error))
        self._persistence.discard(local_name(task.id))
        if times > 1:
            await asyncio.sleep(times * self._settings.restart_delay_first_s)

    async def _with_start(self, restored: Restored, task: Task) -> Restored:
        """Inputs that were never committed begin at the start of their log; bounded ones learn where they end."""
        unknown = [partition for partition in task.inputs if partition not in restored.positions]
        endless = _without_end(task, restored.clock)
        admin = self._log.admin()
        try:
            starts = await admin.start_offsets(unknown) if unknown else {}
            ends = await admin.end_offsets(endless, committed=True) if endless else {}
        except BaseException:
            self._persistence.close(restored.state)
            raise
        topics = {each.topic for each in task.stage.inputs}
        restored.unread = {
            at: offset
            for at, offset in restored.positions.items()
            if at not in task.inputs and at.topic in topics
        }
        restored.positions = {at: starts.get(at, restored.positions.get(at, 0)) for at in task.inputs}
        restored.clock = with_ends(restored.clock, ends)
        return restored

    def start_ready(self, start: Callable[[Task, Restored], None], pauses: Pauses) -> None:
        """Let tasks whose restore has ended begin to run.

        Raises:
            IncompatiblePlan, Misconfigured, Bug: a restore that a person must look at.
        """
        for task_id in [task_id for task_id, work in self._restoring.items() if work.done()]:
            task = self.tasks[task_id]
            self.version += 1
            try:
                restored = self._restoring.pop(task_id).result()
            except IncompatiblePlan as error:
                self._decline(task, error, pauses)
                continue
            start(task, restored)
            self._has_run = True
            for partition in task.inputs:
                pauses.release(partition, Pause.RESTORE)
            self.seek(task, pauses)
        self._is_settled = self._is_settled or (self._has_run and not self._restoring)

    def _decline(self, task: Task, error: IncompatiblePlan, pauses: Pauses) -> None:
        """Leave a task to workers of the version that ran it last, unless it is ours that does not fit.

        Of the tasks that a first worker comes for, some may fit. The answer must not depend on which is restored first.
        """
        ours, plans = self._identity.fingerprint, self.assignment.plans
        is_first = self._came_new and not self._is_settled and plans <= {ours}
        if is_first or (not self._has_run and is_newcomer(ours, plans)):
            raise error
        self._drop(task, pauses)
        self.declined.add(task.id, error)

    def wake(self, now_s: float, pauses: Pauses) -> None:
        """Let tasks whose waiting time is over run again."""
        for task in self.tasks.values():
            if task.life is Life.WAITING and task.wake_at <= now_s:
                task.move(Life.RUNNING)
                self.version += 1
                self.seek(task, pauses)

    def seek(self, task: Task, pauses: Pauses) -> None:
        """Read the task's inputs from its committed positions on."""
        for partition, offset in task.positions.items():
            if not task.is_read_to_its_end(partition):
                pauses.read_from(partition, offset)

    async def close(self, task_ids: Iterable[TaskId], pauses: Pauses) -> None:
        """Give tasks up: stop restoring and reading them, leave their committed state on disk."""
        for task_id in list(task_ids):
            self.version += 1
            work = self._restoring.pop(task_id, None)
            if work is not None:
                await self._cancel(work)
            self._drop(self.tasks[task_id], pauses)
        await self._persistence.settle()  # whoever has them next finds them closed

    def _drop(self, task: Task, pauses: Pauses) -> None:
        del self.tasks[task.id]
        pauses.leave(task.inputs)
        for partition in task.inputs:
            self.owner_of.pop(partition, None)
        self._give_away(task.close())

    def _give_away(self, state: TaskState | None) -> None:
        if state is not None:
            self._persistence.close(state)

    async def _cancel(self, work: asyncio.Task[Restored]) -> None:
        """End a restore; one that had ended already leaves an open store behind, which is closed here."""
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled() and work.exception() is None:
            self._persistence.close(work.result().state)

    async def close_all(self, pauses: Pauses) -> None:
        """Give everything up, the assignment included."""
        self._assignment = None
        await self.close(list(self.tasks), pauses)


def _unknown(task_id: TaskId) -> IncompatiblePlan:
    return IncompatiblePlan(
        f"task {task_id} is of another version of this pipeline",
        detail="this version has no such task",
        hint="run that version, or stop all workers and start this one alone",
    )


def _follows(before: Assignment | None, now: Assignment) -> bool:
    """True if `now` is the round right after `before` and we were a member all the while."""
    return (
        before is not None
        and before.member.member_id == now.member.member_id
        and before.member.generation + 1 == now.member.generation
    )


def _without_end(task: Task, clock: ClockState) -> list[TopicPartition]:
    """The bounded inputs of a task that begins: their end is not committed yet."""
    return [
        partition
        for partition, source in task.inputs.items()
        if source.is_bounded and clock.sources.get(partition.topic, SourceState()).end is None
    ]


def with_ends(clock: ClockState, ends: Mapping[TopicPartition, int]) -> ClockState:
    """The same time, with the ends of bounded inputs."""
    sources = dict(clock.sources)
    for (topic, _), end in ends.items():
        sources[topic] = msgspec.structs.replace(sources.get(topic, SourceState()), end=end)
    return msgspec.structs.replace(clock, sources=sources)


def stages_of(plan: Plan) -> tuple[StageTasks, ...]:
    """What the group must know of a resolved plan."""
    return tuple(StageTasks(stage.name, stage.partitions or 0) for stage in plan.stages)


def inputs_of(stage: Stage, partition: int) -> dict[TopicPartition, Input]:
    """The partitions that task number `partition` of a stage reads."""
    return {
        TopicPartition(each.topic, partition): each
        for each in stage.inputs
        if each.partitions is not None and partition < each.partitions
    }
