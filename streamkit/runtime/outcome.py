"""outcome: what became of a bounded pipeline, read from the commits of all its tasks.

Tasks count what they read, write and set aside, and commit these counts with their clocks: so they are true over
crashes and over any number of workers, and a pipeline that has finished can be told from one that has not begun.
"""

import asyncio

import msgspec
import structlog

from streamkit.errors import Retry
from streamkit.graph.plan import Plan
from streamkit.kafka.ports import Admin, Log
from streamkit.model.counts import DEAD_LETTERS, LATE_RECORDS, RECORDS_IN, RECORDS_OUT
from streamkit.model.ids import MAX_TIME, TopicPartition
from streamkit.runtime.last_commits import last_commits
from streamkit.task.clock_state import CLOCK, decode_clock

say = structlog.get_logger()

# Markers are written within milliseconds; a laden broker may take longer, and another worker may still be at it.
MARKERS_S = 10.0
LOOK_AGAIN_S = 0.05
# Between tries to read what was committed.
PAUSES_S = (0.5, 1.0, 2.0, 4.0)

_COUNTED = (RECORDS_IN, RECORDS_OUT, LATE_RECORDS, DEAD_LETTERS)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """All that was committed so far. Records in are those of source topics, records out those in topics for others."""

    pipeline: str
    is_finished: bool
    records_in: int
    records_out: int
    late: int
    dead_letters: int

    @property
    def is_all_dead(self) -> bool:
        """Whether there was input, and every record of it became a dead letter."""
        return 0 < self.records_in <= self.dead_letters and not self.records_out


def is_bounded(plan: Plan) -> bool:
    """Whether the pipeline ends by itself: each of its sources does."""
    sources = [each for stage in plan.stages for each in stage.inputs if each.kind == "source"]
    return all(each.is_bounded for each in sources)


async def finished(plan: Plan, log: Log, *, has_just_run: bool = False) -> Outcome | None:
    """What became of a bounded pipeline whose tasks have all finished; None of any other.

    If `has_just_run`, what was committed a moment ago gets its time to become visible: a broker acknowledges the end of a
    transaction before its markers are written.
    """
    if not is_bounded(plan):
        return None
    if has_just_run:
        await _wait_for_markers(plan, log.admin())
    outcome = await _patiently(plan, log)
    return outcome if outcome.is_finished else None


async def _patiently(plan: Plan, log: Log) -> Outcome:
    """As `outcome_of`; a changelog that gives no answer is asked again, for no worker has to end over it."""
    for pause_s in PAUSES_S:
        try:
            return await outcome_of(plan, log)
        except Retry as error:
            say.warning(
                "could not read what was committed: will be tried again", error=str(error), seconds=pause_s
            )
            await asyncio.sleep(pause_s)
    return await outcome_of(plan, log)


async def _wait_for_markers(plan: Plan, admin: Admin) -> None:
    counts = await admin.partitions([stage.changelog for stage in plan.stages])
    places = [TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)]
    now_s = asyncio.get_running_loop().time
    give_up_at = now_s() + MARKERS_S
    while now_s() < give_up_at:
        written = await admin.end_offsets(places, committed=False)
        if written == await admin.end_offsets(places, committed=True):
            return
        await asyncio.sleep(LOOK_AGAIN_S)


async def outcome_of(plan: Plan, log: Log) -> Outcome:
    """What the tasks of the pipeline have committed, of all workers together."""
    counts = await log.admin().partitions([stage.changelog for stage in plan.stages])
    clocks = {
        task: decode_clock(record.extra.get(CLOCK))
        for task, record in (await last_commits(plan, log)).items()
    }
    is_whole = len(counts) == len(plan.stages) and len(clocks) == sum(counts.values())
    total = {name: sum(clock.counts.get(name, 0) for clock in clocks.values()) for name in _COUNTED}
    return Outcome(
        pipeline=plan.name,
        # Whether each has told those behind it need not be asked: they would not have come to the end of time.
        is_finished=is_whole and all(clock.fired == MAX_TIME for clock in clocks.values()),
        records_in=total[RECORDS_IN],
        records_out=total[RECORDS_OUT],
        late=total[LATE_RECORDS],
        dead_letters=total[DEAD_LETTERS],
    )
