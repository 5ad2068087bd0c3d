"""What a worker would refuse to run for, found without joining the group. `streamkit check` asks it.

A worker meets these refusals one after the other, when it has joined the group and restores its tasks. Here the same
functions decide about the same facts, read from the group, the changelogs and the inputs; nothing is joined, fenced,
created or copied. Where a worker of the group has a task in hand, its positions move while we look, and that worker has
compared them already: of such a task only what was stored is compared.

What looking cannot tell: rights to write, and what lies on local disks.
"""

import asyncio
from collections.abc import Container, Iterable, Mapping

import structlog

from streamkit.config import Settings
from streamkit.errors import IncompatiblePlan, Misconfigured, Retry
from streamkit.graph.plan import Plan
from streamkit.kafka.broker_fetch import log_gap
from streamkit.kafka.ports import Log, Reader
from streamkit.kafka.preview import Preview
from streamkit.model.ids import Position, TaskId, TopicPartition
from streamkit.progress.task_clock import ClockState, TaskClock
from streamkit.runtime.agree import (
    DISAGREEMENT_S,
    Committed,
    NotAgreed,
    agree,
    decode_plan,
    require_records,
    terms_of,
)
from streamkit.runtime.assign import inputs_of
from streamkit.runtime.declined import STRANDED_HINT, is_newcomer
from streamkit.runtime.given_up import GivenUp
from streamkit.runtime.group_preview import group_of
from streamkit.runtime.last_commits import find_last, find_last_commit
from streamkit.runtime.lost_state import PENDING_S
from streamkit.runtime.prepare import POSITIONS_S, Prepared
from streamkit.state.keys import PLAN_KEY
from streamkit.task.clock_state import CLOCK, decode_clock, open_clock
from streamkit.task.clocks import Clocks
from streamkit.task.identity import identify
from streamkit.task.time_rules import rules_of

log = structlog.get_logger()

LOOK_AGAIN_S = 0.5


async def foresee(prepared: Prepared, log_: Log, settings: Settings) -> list[Misconfigured]:
    """What workers of a plan that fits the cluster would end with, the first first; empty if they would run.

    Raises:
        Retry: a transaction of a worker that is gone stays open; a worker would end it, and only then compare.
    """
    try:
        group = await group_of(prepared.plan, log_.admin(), settings)
    except Misconfigured as error:
        return [error]
    reader = log_.reader(committed=True)
    try:
        return await _Foresight(prepared, log_, reader, settings, group).refusals()
    finally:
        await reader.close()


class _Foresight:
    """Looks at one task after the other."""

    def __init__(
        self, prepared: Prepared, log_: Log, reader: Reader, settings: Settings, group: Preview
    ) -> None:
        plan = prepared.plan
        self._plan = plan
        self._counts = prepared.partition_counts
        self._missing = {spec.name for spec in prepared.missing}
        self._admin = log_.admin()
        self._reader = reader
        self._group = group
        # What no worker can run: those that are there have our plan.
        self._left: dict[TaskId, IncompatiblePlan] = {}
        self._is_newcomer = is_newcomer(identify(plan).fingerprint, group.plans)
        self._given_up = GivenUp("state would be given up for good")
        self._terms = terms_of(identify(plan), settings)
        self._rules = rules_of(plan, settings, Clocks(lambda: 0, lambda: 0))

    async def refusals(self) -> list[Misconfigured]:
        """Look at all tasks, and again for a while at those where what is there does not agree."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + DISAGREEMENT_S
        found: dict[TaskId, Misconfigured] = {}
        again = await self._look_at(tasks_of(self._plan), found)
        if again:
            log.warning(
                "positions and committed state cannot be settled yet: looking again",
                errors=[str(error) for error in again.values()],
            )
        while again and loop.time() < give_up_at:
            await asyncio.sleep(LOOK_AGAIN_S)
            again = await self._look_at(again, found)
        found |= {task: error.for_good() for task, error in again.items()}
        return _each_once(
            [*self._stand_still(), *(found[task] for task in tasks_of(self._plan) if task in found)]
        )

    def _stand_still(self) -> list[Misconfigured]:
        """Tell as one the tasks that workers of our plan leave alone while they run others."""
        if not self._left:
            return []
        return [
            IncompatiblePlan(
                f"no worker can run these tasks: {', '.join(map(str, self._left))}",
                detail="another version of this pipeline ran them last, and none of its workers is there\n"
                + "\n".join(dict.fromkeys(error.detail for error in self._left.values())),
                hint=STRANDED_HINT,
            )
        ]

    async def _look_at(
        self, tasks: Iterable[TaskId], found: dict[TaskId, Misconfigured]
    ) -> dict[TaskId, NotAgreed]:
        """Add what is found; the rest may be only the moment, and is looked at again."""
        again: dict[TaskId, NotAgreed] = {}
        for task in tasks:
            try:
                await self._require(task)
            except NotAgreed as error:
                again[task] = error
            except Misconfigured as error:
                found[task] = error
        return again

    async def _require(self, task: TaskId) -> None:
        """Compare what was committed of a task with what is there.

        Raises:
            NotAgreed, Misconfigured: what a worker that restores the task would raise.
        """
        stage = self._plan.stage(task.stage)
        inputs = inputs_of(stage, task.partition)
        is_at_work = task in self._group.running
        positions = {} if is_at_work else await self._positions(inputs)
        changelog = TopicPartition(stage.changelog, task.partition)
        committed = await self._committed(changelog, positions, is_at_work=is_at_work)
        try:
            places = agree(committed, self._terms)
        except IncompatiblePlan as error:
            if self._is_newcomer:
                raise
            if not is_at_work:
                self._left[task] = error
            return  # or it is left to the worker of the other version that runs it
        self._given_up.tell(committed.plan, self._terms.plan)
        state = ClockState() if committed.record is None else decode_clock(committed.record.extra.get(CLOCK))
        clock = open_clock(inputs, self._rules, state)
        if places and not is_at_work:
            await self._require_input(places, inputs, clock)

    async def _positions(self, inputs: Iterable[TopicPartition]) -> dict[TopicPartition, Position]:
        try:
            return await self._admin.positions(self._plan.group, inputs, timeout_s=PENDING_S)
        except Retry:
            log.info("waiting for an open transaction to end", at_most_s=POSITIONS_S)
            return await self._admin.positions(self._plan.group, inputs, timeout_s=POSITIONS_S)

    async def _committed(
        self, changelog: TopicPartition, positions: Mapping[TopicPartition, Position], *, is_at_work: bool
    ) -> Committed:
        """The last commit of a task, and the plan that is stored with it if it is another one than ours."""
        nothing = Committed(changelog, None, None, positions)
        if changelog.topic in self._missing or changelog.partition >= self._counts[changelog.topic]:
            return nothing
        start = (await self._admin.start_offsets([changelog]))[changelog]
        end = await self._end(changelog, is_at_work=is_at_work)
        last = await find_last_commit(self._reader, changelog, start, end)
        if last is None:
            return nothing
        offset, record = last
        if record.fingerprint == self._terms.plan.fingerprint:
            return Committed(changelog, record, None, positions)
        row = await find_last(self._reader, changelog, PLAN_KEY, (start, offset))
        return Committed(changelog, record, decode_plan(None if row is None else row[1]), positions)

    async def _end(self, changelog: TopicPartition, *, is_at_work: bool) -> int:
        """Where what is committed ends, when everything that is open now has ended; a worker's commits go on and on.

        Raises:
            Retry: a transaction stays open.
        """
        end = (await self._admin.end_offsets([changelog], committed=is_at_work))[changelog]
        give_up_at = asyncio.get_running_loop().time() + POSITIONS_S
        while (await self._admin.end_offsets([changelog], committed=True))[changelog] < end:
            if asyncio.get_running_loop().time() >= give_up_at:
                raise Retry(f"an open transaction holds {changelog} back")
            await asyncio.sleep(LOOK_AGAIN_S)
        return end

    async def _require_input(
        self, places: Mapping[TopicPartition, int], inputs: Container[TopicPartition], clock: TaskClock
    ) -> None:
        """Refuse positions outside their logs; a topic that is missing would be created, and be empty.

        Raises:
            BeyondEnd, LogGap: the records that come next are not there.
        """
        there = [at for at in places if at.topic not in self._missing]
        ends = await self._admin.end_offsets(there, committed=False) if there else {}
        require_records(places, dict.fromkeys(places, 0) | ends)
        starts = await self._admin.start_offsets(there) if there else {}
        for at, start in starts.items():
            source = clock.sources.get(at.topic)
            is_ended = source is not None and source.end is not None and places[at] >= source.end
            if at in inputs and places[at] < start and not is_ended:
                raise log_gap(at, places[at], (start, ends[at]))


def tasks_of(plan: Plan) -> list[TaskId]:
    """The tasks of a resolved plan."""
    return [TaskId(stage.name, number) for stage in plan.stages for number in range(stage.partitions or 0)]


def _each_once(errors: Iterable[Misconfigured]) -> list[Misconfigured]:
    """What does not fit in one task mostly does not fit in the others, for the same reason."""
    return list({error.render(): error for error in errors}.values())
