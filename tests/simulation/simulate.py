"""One seed, from its scenario to its verdict."""

import asyncio
import contextlib
import logging
import traceback
from collections.abc import Iterator
from typing import Any, Never

import msgspec
import structlog

from streamkit.testing.virtual_time import Deadlock, Livelock, VirtualLoop, run
from tests.simulation import invariants, losses
from tests.simulation.attempts import counted, hear
from tests.simulation.cleaning import local_state_lasts, with_cleaner
from tests.simulation.families import Family, family_of
from tests.simulation.growing import draw_growing
from tests.simulation.hostile import draw_hostile
from tests.simulation.nemesis import Nemesis
from tests.simulation.outside import Outside
from tests.simulation.pipelines import set_work
from tests.simulation.scenario import FAIR, Bias, Scenario, draw, stream
from tests.simulation.work import Labour
from tests.simulation.world import Violation, World

# A run takes some thousands of steps; one that takes this many is spinning.
STEPS_MAX = 600_000
CLEARING_ROUNDS = 20
# Families whose scenarios are more than what their seeds draw.
DRAWN_BY = {Family.GROWING: draw_growing, Family.HOSTILE: draw_hostile}


class Verdict(msgspec.Struct):
    """What became of one seed."""

    seed: int
    problems: list[str]
    trace: int
    steps: int
    virtual_s: float
    faults: dict[str, int]


class Meter:
    """What is known of a run even if it ends badly."""

    def __init__(self) -> None:
        self.world: World | None = None
        self.loop: VirtualLoop | None = None
        self.problems: list[str] = []


def simulate(seed: int, bias: Bias = FAIR, *, verbose: bool = False) -> Verdict:
    """Run one seed."""
    meter = Meter()
    scenario = DRAWN_BY.get(family_of(seed), draw)(seed, bias)
    scenario = with_cleaner(scenario, bias)
    if verbose:
        print(msgspec.structs.replace(scenario, loads=()))
    try:
        run(_play(scenario, meter, verbose=verbose), seed, steps_max=STEPS_MAX)
    except Violation as violation:
        meter.problems.append(str(violation))
    except (Deadlock, Livelock) as stuck:
        meter.problems.append(f"I13: {type(stuck).__name__}: {stuck}; {_failures(meter)}")
    except Exception:  # noqa: BLE001 - the simulation itself is at fault: as bad as a violation
        meter.problems.append(f"the simulation failed: {traceback.format_exc()}")
    world, loop = meter.world, meter.loop
    assert world is not None
    assert loop is not None
    return Verdict(
        seed=seed,
        problems=meter.problems,
        trace=hash((loop.trace, world.trace.number)),
        steps=loop.steps,
        virtual_s=loop.time(),
        faults=dict(world.trace.counts),
    )


def _failures(meter: Meter) -> str:
    return "; ".join(meter.world.failures) if meter.world is not None else ""


async def _play(scenario: Scenario, meter: Meter, *, verbose: bool) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.set_exception_handler(lambda _loop, _context: None)  # killed processes leave tasks behind
    meter.loop = loop
    world = meter.world = World(scenario, verbose=verbose)
    if scenario.work_s:
        set_work(Labour(world).spend)
    try:
        with local_state_lasts(scenario), counted(world):
            await _history(world, meter)
    finally:
        set_work(None)
        await _clear(world)


async def _clear(world: World) -> None:
    """End what is still running, and what killed processes left: it must not outlive the loop."""
    for network in world.networks:
        network.kill()
    for _ in range(CLEARING_ROUNDS):
        rest = sorted(asyncio.all_tasks() - {asyncio.current_task()}, key=hash)
        if not rest:
            return
        for task in rest:
            task.cancel()
        await asyncio.wait(rest, timeout=0.01)


async def _history(world: World, meter: Meter) -> None:
    """The story of a run: trouble, healing, rest, a clean end, sometimes one more life."""
    scenario = world.scenario
    outside = Outside(world)
    await outside.create_topics()
    for _ in range(scenario.workers):
        world.add_worker()
    nemesis = Nemesis(world)
    await asyncio.gather(outside.feed(), nemesis.run())
    world.trace.note("nemesis", "heals everything")
    nemesis.heal()
    await world.come_to_rest()
    meter.problems += invariants.check_all(world)
    if meter.problems:
        return
    for worker in world.workers:
        world.stop(worker)
    works = [worker.life.work for worker in world.workers if worker.life is not None and worker.life.work]
    if works:
        await asyncio.wait(works)
    if scenario.shape_of().idle_ms is not None:
        # Who finds an input idle commits that, at rest or not.
        await asyncio.sleep(scenario.marker_delay_s_max)
    meter.problems += [*world.failures, *invariants.check_end(world)]
    if not meter.problems and stream(scenario.seed, "again").random() < 0.3:
        world.trace.note("nemesis", "one more life on an empty disk")
        world.add_worker()
        await world.come_to_rest()
        meter.problems += invariants.check_all(world)
    elif not meter.problems and stream(scenario.seed, "loses").random() < losses.SHARE:
        meter.problems += await losses.lose_and_look(world)


@contextlib.contextmanager
def quiet(*, verbose: bool = False) -> Iterator[None]:
    """Keep the runtime's own log out of the way, but hear its warnings; with `verbose` let it through."""
    was_configured, before = structlog.is_configured(), structlog.get_config()
    level = logging.DEBUG if verbose else logging.WARNING
    structlog.configure(
        processors=[hear, *(before["processors"] if verbose else [_drop])],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=False,
    )
    try:
        yield
    finally:
        structlog.configure(**before)
        if not was_configured:
            structlog.reset_defaults()  # or a harness in the same process would believe that somebody asked for logs


def _drop(_logger: object, _level: str, _line: Any) -> Never:
    raise structlog.DropEvent
