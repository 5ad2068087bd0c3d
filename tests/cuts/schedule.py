"""Schedules: what happens to the workers of the model, at random; and what must be true of the logs when it is over.

I10a: in each partition of the shuffle no record of a task stands between its own barrier and the last one of a complete cut, and
whoever read the partition stopped behind the last one. I18: no task stands still once its cut has ended.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from streamkit.cuts.ledger import Cut, Ledger
from streamkit.model.signal import Barrier
from tests.cuts.model import SHUFFLE, Bias, Protocol, Sent, Worker, World
from tests.cuts.model_log import Fate, Log

STEPS = 500
# Rounds of doing everything that can be done, after which nothing may be left to do.
CALM_ROUNDS = 60


HOSTILE = Bias()
SMOOTH = Bias(rebalance=0.002, crash=0.001, sleep=0.003, time_out=0.002)
# Barriers may be heard before the trigger is read.
LAGGING = Bias(rebalance=0.0005, crash=0.0002, sleep=0.001, time_out=0.0005, lag=0.9)
# Few things happen, but where it hurts.
LATE = Bias(
    rebalance=0.0005, crash=0.0002, sleep=0.001, time_out=0.0002, zombie=0.1, zombie_sleeps=150, slowness=0.95
)


class Found(NamedTuple):
    """What a schedule has shown."""

    problems: list[str]
    counts: Counter[str]


def run(seed: int, protocol: Protocol | None = None, bias: Bias | None = None) -> Found:
    """One schedule."""
    shape = seed % 6
    world = World(
        seed,
        protocol or Protocol(),
        bias or Bias(),
        tasks=2 + shape % 2,
        workers=2 + shape // 3,
        has_readers=seed % 4 < 2,
    )
    for _ in range(STEPS):
        _step(world)
    problems = _calm(world)
    ended = _judged(world)
    problems += [each for cut in ended if cut.end and cut.end.is_complete for each in _misaligned(world, cut)]
    counts = Counter(each for cut in ended for each in _kinds(world, cut))
    return Found(problems, counts)


def _kinds(world: World, cut: Cut) -> Iterator[str]:
    """Under what a cut is counted."""
    assert cut.end is not None
    assert cut.trigger is not None
    yield "complete" if cut.end.is_complete else "aborted"
    if cut.end.is_complete and world.has_readers:
        yield "complete with readers"
    if cut.end.is_complete and cut.is_stopping:
        yield "stopping and complete"
    if cut.end.is_complete and cut.end.round > cut.trigger.round:
        yield "complete in a later round"


def _step(world: World) -> None:
    chance, bias = world.chance, world.bias
    dice = chance.random()
    if dice < 0.3:
        world.mark_one()
        return
    worker = chance.choice(world.workers)
    dice = chance.random()
    for likely, happens in (
        (bias.rebalance, _leave_out),
        (bias.crash, _crash),
        (bias.sleep, _fall_asleep),
        (bias.time_out, _time_out),
    ):
        if dice < likely:
            happens(world, worker)
            return
        dice -= likely
    if worker.asleep:
        worker.asleep -= 1
        return
    worker.step()
    span = worker.span
    is_half_way = (
        span is not None and span.images and span.transaction.is_accepted and any(span.queues.values())
    )
    if is_half_way and chance.random() < bias.zombie:
        worker.asleep = chance.randrange(bias.zombie_sleeps)
        _leave_out(world, worker)


def _leave_out(world: World, worker: Worker) -> None:
    """The group goes on without this worker, which does not know."""
    others = {each for each in world.workers if each is not worker and world.chance.random() < 0.9}
    world.rebalance(others or {worker})


def _fall_asleep(world: World, worker: Worker) -> None:
    worker.asleep = world.chance.randrange(5, 40)


def _crash(world: World, worker: Worker) -> None:
    """All that it knew is gone, but for what it had begun to write; meanwhile the control log is compacted."""
    world.group.members.discard(worker)
    worker.begin_life()
    world.control.compact(world.chance.randrange(world.control.stable_end + 1))


def _time_out(world: World, _worker: Worker) -> None:
    """A transaction has lasted too long, or its writer is fenced."""
    for each in world.transactions:
        if each.fate is Fate.OPEN:
            each.decide(Fate.ABORTED)
            return


def _calm(world: World) -> list[str]:
    """Nothing happens any more but what has to; returns who stands still for ever."""
    world.is_calm, world.triggers_left = True, 0
    under_way = {worker.span.transaction for worker in world.workers if worker.span is not None}
    for each in world.transactions:
        if each.fate is Fate.OPEN and each not in under_way:
            each.decide(Fate.ABORTED)
    for worker in world.workers:
        worker.asleep = 0
    for _ in range(CALM_ROUNDS):
        for worker in world.workers:
            for _ in range(20):
                worker.step()
                world.mark_one()
        standing = list(_standing(world))
        if not standing:
            return []
    return standing


def _standing(world: World) -> Iterator[str]:
    """Who stands still, or has yet to come back."""
    ended = {cut.number: cut for cut in _judged(world)}
    for worker in world.workers:
        if worker.waiting or worker.round != world.group.round:
            yield f"I18: a worker of round {worker.round} waits for {worker.waiting}"
        for task in worker.tasks.values():
            cut = ended.get(task.stopped_at or 0)
            is_for_good = cut is not None and cut.is_stopping and cut.end is not None and cut.end.is_complete
            if task.stopped_at is not None and not is_for_good:
                yield f"I18: {task.id} stands at cut {task.stopped_at}"


def _judged(world: World) -> list[Cut]:
    """The cuts that have ended, as the control log tells at last."""
    ledger = Ledger()
    for _, note in world.control.committed():
        ledger.read(note)
    return [cut for cut in ledger.ended if cut.trigger is not None]


def _misaligned(world: World, cut: Cut) -> Iterator[str]:
    """Where a complete cut is none."""
    assert cut.trigger is not None
    barrier = Barrier(cut.number, cut.trigger.round)
    for partition, log in enumerate(world.shuffle):
        yield from _wrong_in(log, barrier, f"cut {cut.number}, partition {partition}", world.stages["up"])
    if world.has_readers:
        for task, reached in cut.reached.items():
            if task.stage == "down":
                at = reached.positions[SHUFFLE][task.partition]
                yield from _wrong_behind(
                    world.shuffle[task.partition], barrier, at, f"cut {cut.number}, {task}"
                )


def _barriers(log: Log, barrier: Barrier) -> dict[int, int]:
    """Where each task has written this barrier."""
    return {
        sent.task.partition: offset
        for offset, sent in log.committed()
        if _is_barrier(sent) and sent.barrier == barrier
    }


def _is_barrier(sent: Sent) -> bool:
    return sent.barrier is not None


def _wrong_in(log: Log, barrier: Barrier, where: str, tasks: int) -> Iterator[str]:
    own = _barriers(log, barrier)
    if len(own) != tasks:
        yield f"I10a: {where}: {len(own)} barriers of {tasks}"
        return
    for offset, sent in log.committed():
        if sent.barrier is None and own[sent.task.partition] < offset < max(own.values()):
            yield f"I10a: {where}: {sent.task} wrote at {offset}, its barrier is {own[sent.task.partition]} of {own}"


def _wrong_behind(log: Log, barrier: Barrier, position: int, where: str) -> Iterator[str]:
    own = _barriers(log, barrier)
    for offset, sent in log.committed():
        if sent.barrier is None and (offset < position) != (offset < own.get(sent.task.partition, -1)):
            yield f"I10a: {where}: read up to {position}, but {sent.task} wrote at {offset}, its barrier is in {own}"
