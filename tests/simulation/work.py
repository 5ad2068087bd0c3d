"""Records that take virtual time, the watch over the workers that run them, and the check that nobody runs in circles."""

import sys

from streamkit.model.ids import TopicPartition
from streamkit.runtime.whereabouts import Whereabouts, whereabouts
from streamkit.task.counts import DEAD_LETTERS
from streamkit.testing.virtual_time import VirtualLoop
from streamkit.testing.watched import watched
from tests.simulation.pipelines import Fate
from tests.simulation.world import Life, Worker, World

# How often a record may be run while nothing comes of it and nobody says a word: far more than all failing records of
# a span together cause.
RUNS_MAX = 60


class Labour:
    """Lets the records of a world take time."""

    def __init__(self, world: World) -> None:
        assert isinstance(world.loop, VirtualLoop)
        self._world = world
        self._loop = world.loop
        # For each record: what was known when it was run last, and how often it was run since that has changed.
        self._runs: dict[tuple[TopicPartition, int], tuple[object, int]] = {}
        world.on_start = self.watch_over

    def spend(self, fate: Fate) -> None:
        """A record is at work."""
        where = whereabouts(sys._getframe(1))
        assert where is not None
        self._count(where)
        world = self._world
        world.trace.count(f"work {fate}")
        self._loop.spend(world.scenario.work_s["stuck" if fate == "stuck_late" else fate], where)

    def _count(self, where: Whereabouts) -> None:
        """I17: no record is run again and again without a commit, a letter or a warning in between."""
        if where.partition is None or where.offset < 0:
            return
        place, known = (where.partition, where.offset), self._known(where.partition)
        before, runs = self._runs.get(place, (None, 0))
        runs = runs + 1 if known == before else 1
        self._runs[place] = (known, runs)
        if runs == RUNS_MAX:
            self._world.failures.append(f"I17: {where.in_hand} was run {runs} times, and nothing came of it")

    def _known(self, partition: TopicPartition) -> object:
        world = self._world
        agents = [worker.agent for worker in world.workers if worker.agent is not None]
        faults = sum(count for name, count in world.trace.counts.items() if not name.startswith("work "))
        return (
            world.broker.groups.group(world.plan.name).positions.get(partition),
            faults,
            sum(worker.lives for worker in world.workers),
            sum(agent.watch.given_up for agent in agents),
            sum(task.clock.counts[DEAD_LETTERS] for agent in agents for task in agent.roster.running()),
        )

    async def watch_over(self, worker: Worker, life: Life, process: str) -> None:
        """What the thread beside a worker's event loop does in life."""
        assert life.agent is not None

        await watched(life.agent.watch, process)
        if worker.life is life:
            self._world.trace.count("ended by its watch")
            life.watching = None  # or its end would end us
            await self._world.start_again(worker)
