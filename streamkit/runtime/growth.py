"""growth: a source that gets more partitions while its pipeline runs.

A stage without state takes them over by itself: the worker ends its span, prepares the cluster for the new count (its
changelog grows, shuffles keep theirs) and goes on with a new plan, in the same process. Others notice earlier or later; until
then each says in the group which tasks it knows, and gets no others. Where state depends on the count, keys have moved
away from it: that is told again and again, nothing of the new partitions is read, and the old ones go on.
"""

import asyncio
from collections.abc import Mapping

import structlog

from streamkit.graph.plan import Plan
from streamkit.graph.stage import Stage
from streamkit.kafka.ports import Admin
from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.lost_state import BEGIN_ANEW
from streamkit.runtime.periodic_checks import CheckFailures

log = structlog.get_logger()

# One small request per look: a new partition is noticed well within a minute.
LOOK_S = 20.0
# How often what needs a person is told.
TELL_S = 600.0


def grown_stages(plan: Plan, counts: Mapping[str, int]) -> list[Stage]:
    """The stages of a resolved plan that read a source with more partitions than they know of."""
    return [
        stage
        for stage in plan.stages
        if any(
            each.kind == "source" and counts.get(each.topic, 0) > (each.partitions or 0)
            for each in stage.inputs
        )
    ]


async def run_until_grown(loop: WorkerLoop, admin: Admin, look_s: float = LOOK_S) -> bool:
    """Run a worker loop to its end; whether it ended because the pipeline needs a plan with more tasks.

    Raises:
        Misconfigured, Bug: a person must act.
    """
    watching = asyncio.create_task(_watch(loop, admin, look_s), name="growth")
    try:
        await loop.run()
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    if watching.cancelled():
        return False
    watching.result()
    return True


async def _watch(loop: WorkerLoop, admin: Admin, look_s: float) -> None:
    """Return, and stop the worker loop, when partitions have come that a new plan can take over; or when looks keep failing."""
    look = GrowthLook(loop.roster.plan, admin)
    failures = CheckFailures("new partitions of sources")
    pause_s = look_s
    try:
        while True:
            await asyncio.sleep(pause_s)
            try:
                if await look.is_grown():
                    return
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the look unseen
                pause_s = failures.failed(error, look_s)
            else:
                failures.went_well()
                pause_s = look_s
    finally:
        loop.stop()


class GrowthLook:
    """Compares the sources of a plan with what it knows of them."""

    def __init__(self, plan: Plan, admin: Admin) -> None:
        self._plan = plan
        self._admin = admin
        self._told_at_s = float("-inf")

    async def is_grown(self) -> bool:
        """Whether partitions have come that a new plan can take over; those that none can are told."""
        stages = grown_stages(self._plan, await self._admin.partitions(self._plan.sources()))
        bound = [stage for stage in stages if stage.stores]
        if stages and not bound:
            log.info(
                "a source has more partitions: they are taken over", stages=[each.name for each in stages]
            )
            return True
        now_s = asyncio.get_running_loop().time()
        if bound and now_s - self._told_at_s > TELL_S:
            self._told_at_s = now_s
            log.error(
                "a source has more partitions than there is state for: the new ones are not read",
                stages=[each.name for each in bound],
                hint=f"read it through key_by, in a pipeline of a new name; or\n{BEGIN_ANEW}",
            )
        return False
