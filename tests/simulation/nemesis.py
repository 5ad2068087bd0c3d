"""The nemesis: does what the scenario says, then heals everything."""

import asyncio
from collections.abc import Callable

from streamkit.state.keys import COMMIT_KEY
from streamkit.testing.memory.network import Fate
from tests.simulation.forging import forge
from tests.simulation.network import Trap
from tests.simulation.scenario import Action, ClockStep, stream
from tests.simulation.world import Worker, World

RESTART_S_MAX = 1.5


class Nemesis:
    """Hurts a world by the plan of its scenario."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._chance = stream(world.scenario.seed, "nemesis at work")
        self._strange = stream(world.scenario.seed, "forging")
        self._timers: list[asyncio.TimerHandle] = []

    async def run(self) -> None:
        """Every action at its time."""
        for step in self._world.scenario.clock_steps:
            self._world.loop.call_at(step.at_s, self._set_clock, step)
        for action in self._world.scenario.actions:
            await asyncio.sleep(max(0.0, action.at_s - self._world.loop.time()))
            workers = self._world.workers
            getattr(self, f"_{action.kind}")(action, workers[action.worker % len(workers)])

    def _set_clock(self, step: ClockStep) -> None:
        worker = self._world.workers[step.worker % len(self._world.workers)]
        worker.clock_ms += step.by_ms
        self._world.trace.note(worker.name, f"clock set by {step.by_ms} ms")
        self._world.trace.count("clock set")

    def heal(self) -> None:
        """Stop hurting: every worker that is there can work, and at least one is there."""
        self._world.is_healed = True
        for timer in self._timers:
            timer.cancel()
        for worker in self._world.workers:
            if worker.life is not None:
                network = worker.life.network
                network.trap = None
                network.chances = {}
                network.heal()
                network.thaw()
        for worker in self._world.workers:
            if worker.life is None and self._chance.random() < 0.7:
                self._world.start(worker)
        if not any(worker.life is not None and not worker.life.is_stopping for worker in self._world.workers):
            self._world.add_worker()
        if self._world.is_deployed and not any(
            worker.life is not None and worker.life.is_new_version and not worker.life.is_stopping
            for worker in self._world.workers
        ):
            self._world.add_worker()

    def _later(self, seconds: float, worker: Worker, act: str) -> None:
        life = worker.life

        def do() -> None:
            if act == "restart":
                if worker.life is None:
                    self._world.start(worker)
            elif life is not None and worker.life is life:
                getattr(life.network, act)()

        self._timers.append(self._world.loop.call_later(seconds, do))

    # One method per kind of action.

    def _kill(self, action: Action, worker: Worker) -> None:
        if self._world.kill(worker):
            self._world.trace.count("kill")
            self._later(action.lasts_s, worker, "restart")

    def _lose_disk(self, action: Action, worker: Worker) -> None:
        if self._world.kill(worker):
            self._world.trace.count("lose_disk")
            self._world.move(worker, self._chance)
            self._later(action.lasts_s, worker, "restart")

    def _kill_at(self, action: Action, worker: Worker) -> None:
        self._arm(action, worker, self._kill)

    def _freeze(self, action: Action, worker: Worker) -> None:
        if worker.life is not None and not worker.life.network.is_frozen:
            self._world.trace.note(worker.name, "frozen")
            self._world.trace.count("freeze")
            worker.life.network.freeze()
            self._later(action.lasts_s, worker, "thaw")

    def _freeze_at(self, action: Action, worker: Worker) -> None:
        self._arm(action, worker, self._freeze)
        if action.trap == "member.join":  # there must be a round to be late for
            self._join(action, worker)

    def _arm(self, action: Action, worker: Worker, act: Callable[[Action, Worker], None]) -> None:
        """Lie in wait; for what a process does only when it starts, let it start again."""
        if action.trap == "writer.open" and self._world.kill(worker):
            self._world.start(worker)
        if worker.life is not None:
            worker.life.network.trap = Trap(action.trap, lambda: act(action, worker), after=action.after)

    def _cut(self, action: Action, worker: Worker) -> None:
        if worker.life is not None and not worker.life.network.is_cut:
            self._world.trace.note(worker.name, "cut off")
            self._world.trace.count("cut")
            worker.life.network.cut()
            self._later(action.lasts_s, worker, "heal")

    def _storm(self, action: Action, worker: Worker) -> None:
        """Lost requests, lost replies and late requests, for one worker, for a while."""
        if worker.life is None:
            return
        network = worker.life.network
        fates = (Fate.REQUEST_LOST, Fate.REPLY_LOST, Fate.REQUEST_LATE)
        network.chances = dict(zip(fates, action.chances, strict=True))
        network.only = (
            None if action.after else ("writer.produce", "writer.positions", "writer.end", action.trap)
        )
        self._world.trace.count("storm")

        def calm() -> None:
            network.chances = {}

        self._timers.append(self._world.loop.call_later(action.lasts_s, calm))

    def _stop(self, action: Action, worker: Worker) -> None:
        if self._world.stop(worker):
            self._world.trace.count("stop")
            self._later(action.lasts_s + RESTART_S_MAX, worker, "restart")

    def _join(self, action: Action, worker: Worker) -> None:  # noqa: ARG002 - a new one comes
        self._world.trace.count("join")
        self._world.add_worker()

    def _forget_at(self, action: Action, worker: Worker) -> None:
        self._arm(action, worker, self._forget)

    def _forget(self, action: Action, worker: Worker) -> None:
        """The broker starts anew; of the markers that were still to be written it forgets some, and calls it done."""
        of_partitions, of_positions, of_killing = action.chances
        ours = f"{self._world.plan.name}."

        def forgets(writer_id: str, is_position: bool) -> bool:
            chance = of_positions if is_position else of_partitions
            return writer_id.startswith(ours) and self._chance.random() < chance

        forgotten = self._world.broker.transactions.restart(forgets)
        self._world.trace.note("broker", f"starts anew, forgets {forgotten} markers")
        self._world.trace.count("broker restart")
        if forgotten:
            self._world.trace.count("forgotten transaction")
        if self._chance.random() < of_killing:
            self._kill(action, worker)

    def _forge(self, action: Action, worker: Worker) -> None:  # noqa: ARG002 - a stranger does it
        forge(self._world, self._strange)

    def _compact(self, action: Action, worker: Worker) -> None:  # noqa: ARG002 - the broker does it
        """The log cleaner passes over all changelogs."""
        self._world.trace.count("compact")
        kept_s = self._world.scenario.tombstones_kept_s
        gone_ms = None if kept_s is None else self._world.now_ms() - int(kept_s * 1000)
        for partition in self._world.changelogs():
            history = self._world.remember_history(partition)
            # What no commit record follows lies in the segment that is being written: only an append begins another.
            commits = [offset for offset, (key, _, _) in history.items() if key == COMMIT_KEY]
            dropped = partition.compact(max(commits, default=-1) + 1, tombstones_before_ms=gone_ms)
            if dropped:
                self._world.trace.count("tombstones dropped")
