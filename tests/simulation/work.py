"""Records that take virtual time, and the watch over the workers that run them."""

import sys

from streamkit.runtime.whereabouts import whereabouts
from streamkit.testing.virtual_time import VirtualLoop
from streamkit.testing.watched import watched
from tests.simulation.pipelines import Fate
from tests.simulation.world import Life, Worker, World


class Labour:
    """Lets the records of a world take time."""

    def __init__(self, world: World) -> None:
        assert isinstance(world.loop, VirtualLoop)
        self._world = world
        self._loop = world.loop
        world.on_start = self.watch_over

    def spend(self, fate: Fate) -> None:
        """A record is at work."""
        where = whereabouts(sys._getframe(1))
        assert where is not None
        world = self._world
        world.trace.count(f"work {fate}")
        self._loop.spend(world.scenario.work_s["stuck" if fate == "stuck_late" else fate], where)

    async def watch_over(self, worker: Worker, life: Life, process: str) -> None:
        """What the thread beside a worker's event loop does in life."""
        assert life.loop is not None

        await watched(life.loop.watch, process)
        if worker.life is life:
            self._world.trace.count("ended by its watch")
            life.watching = None  # or its end would end us
            await self._world.start_again(worker)
