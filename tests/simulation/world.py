"""The world of one run: a broker, workers with their disks and networks, somebody who writes, somebody who hurts."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random

from streamkit.errors import Bug, IncompatiblePlan, Misconfigured, StreamkitError
from streamkit.model.ids import TopicPartition
from streamkit.runtime.assemble import assemble
from streamkit.runtime.growth import run_until_grown
from streamkit.runtime.loop import WorkerLoop
from streamkit.runtime.persist import Storage
from streamkit.state.budget import MemoryBudget
from streamkit.state.memory import MemoryStores
from streamkit.state.store import StateStore
from streamkit.testing.memory import MemoryBroker
from streamkit.testing.memory.groups import Group, Phase
from streamkit.testing.memory.partition import MemoryPartition, Transaction
from streamkit.testing.virtual_disk import VirtualDisk
from streamkit.testing.virtual_time import in_process
from tests.simulation.calm import is_calm
from tests.simulation.garbage import Garbage
from tests.simulation.growing import LOOK_S
from tests.simulation.network import AuditedTransactions, SimNetwork, SmallBatchLog, Trace
from tests.simulation.pipelines import Making, renew
from tests.simulation.scenario import EPOCH_MS, Scenario, stream

# What the pipeline may take to come to rest once nobody hurts it any more: far longer than any time-out.
PATIENCE_S = 90.0
# The same if records take time: every worker may try one that is stuck some times before it is set aside.
SLOW_PATIENCE_S = 600.0

RawRecord = tuple[bytes | None, bytes | None, Transaction | None]


class Violation(Exception):
    """An invariant does not hold."""


class LifeStores:
    """The disk as one life sees it: after its death it must not touch it any more."""

    def __init__(self, disk: MemoryStores) -> None:
        self._disk = disk
        self.is_dead = False

    def open(self, name: str, *, beside: bool = True) -> StateStore:
        self._check()
        return self._disk.open(name, beside=beside)

    def discard(self, name: str) -> None:
        self._check()
        self._disk.discard(name)

    def close(self) -> None:
        self._check()

    def _check(self) -> None:
        if self.is_dead:
            raise RuntimeError("a dead process asked for its disk")


class Life:
    """One process, from its start to its end."""

    def __init__(self, world: "World", network: SimNetwork, disk: MemoryStores) -> None:
        scenario = world.scenario
        self.network = network
        self.log = SmallBatchLog(
            world.broker,
            network,
            garbage=world.garbage,
            fetch_bytes_max=scenario.fetch_bytes_max,
            batch_bytes_max=scenario.batch_bytes_max,
        )
        self.stores = LifeStores(disk)
        chance = stream(scenario.seed, f"disk of {network.name}")
        self.disk = VirtualDisk(lambda: chance.random() * scenario.disk_delay_s_max)
        self.loop: WorkerLoop | None = None
        self.work: asyncio.Task[None] | None = None
        self.watching: asyncio.Task[None] | None = None
        self.is_stopping = False
        self.is_new_version = False

    def end_watch(self) -> None:
        """The process ends, and the thread in it."""
        if self.watching is not None:
            self.watching.cancel()


class Worker:
    """A place where processes run one after the other, with a disk and a name that outlive them."""

    def __init__(self, name: str, disk: MemoryStores) -> None:
        self.name = name
        self.disk = disk
        self.life: Life | None = None
        self.lives = 0
        # By how much the clock on the wall of its host is wrong.
        self.clock_ms = 0
        # Every member id that one of its lives was given.
        self.known_as: set[str] = set()
        self._member: str | None = None
        self._writer: str | None = None
        self._losses = b""

    def read_losses(self) -> list[bytes]:
        return [self._losses]

    def write_losses(self, data: bytes) -> None:
        self._losses = data

    @property
    def life_name(self) -> str:
        return f"{self.name}.{self.lives}"

    def former_writer(self) -> str | None:
        return self._writer

    def remember_writer(self, writer_id: str | None) -> None:
        self._writer = writer_id

    def former_member(self) -> str | None:
        return self._member or None

    def remember_member(self, member_id: str) -> None:
        self._member = member_id
        self.known_as.add(member_id)

    @property
    def loop(self) -> WorkerLoop | None:
        return None if self.life is None else self.life.loop


class World:
    """Everything in one run."""

    def __init__(self, scenario: Scenario, *, verbose: bool = False) -> None:
        self.scenario = scenario
        self.loop = asyncio.get_running_loop()
        self.trace = Trace(self.loop.time, verbose=verbose)
        self.making = Making(scenario.shape_of(), scenario.policy, scenario.shuffle_partitions)
        scenario.shape_of().build(self.making)
        self.first_plan = self.plan = self.making.pipeline.plan()
        if scenario.deployed_at_s is not None:
            renew(self.making)
            self.plan = self.making.pipeline.plan()
        self.broker = self._broker()
        self.garbage = Garbage()
        self.workers: list[Worker] = []
        self.networks: list[SimNetwork] = []
        self.disks: list[MemoryStores] = []
        self.idle_disks: list[MemoryStores] = []
        self.failures: list[str] = []
        # True when nobody hurts it any more; a deploy has come by then.
        self.is_healed = False
        # Changelog records as they were before compaction took some of them away.
        self.history: dict[TopicPartition, dict[int, RawRecord]] = {}
        self._restarting = 0
        # What runs beside a worker's event loop; `tests/simulation/work.py` watches those whose records take time.
        self.on_start: Callable[[Worker, Life, str], Coroutine[None, None, None]] | None = None
        self._chance = stream(scenario.seed, "world")

    def _broker(self) -> MemoryBroker:
        chance, most = stream(self.scenario.seed, "markers"), self.scenario.marker_delay_s_max
        broker = MemoryBroker(
            marker_delay_s=(lambda: chance.random() * most) if most else None, clock_ms=self.now_ms
        )
        broker.transactions = AuditedTransactions(broker.transactions)
        return broker

    def now_ms(self) -> int:
        """The clock on every wall."""
        return EPOCH_MS + int(self.loop.time() * 1000)

    # -- workers --------------------------------------------------------------------------------------------------

    def add_worker(self) -> Worker:
        worker = Worker(f"w{len(self.workers)}", self.new_disk())
        self.workers.append(worker)
        self.start(worker)
        return worker

    def new_disk(self) -> MemoryStores:
        chance, kind = stream(self.scenario.seed, f"disk {len(self.disks)}"), self.scenario.survives
        survives = {"all": None, "some": lambda _, count: chance.randint(0, count), "none": lambda *_: 0}[
            kind
        ]
        self.disks.append(MemoryStores(survives))
        return self.disks[-1]

    def start(self, worker: Worker) -> None:
        """Start a process; the one before is surely dead."""
        worker.lives += 1
        name = f"{worker.name}.{worker.lives}"
        chance = stream(self.scenario.seed, f"network {name}")
        network = SimNetwork(name, chance, self.trace, self.scenario.delay_s_max)
        self.networks.append(network)
        life = worker.life = Life(self, network, worker.disk)
        life.is_new_version = self.is_deployed
        self.trace.note(name, "starts with the new version" if life.is_new_version else "starts")
        context = in_process(name)
        life.work = asyncio.create_task(self._live(worker, life, name), name=name, context=context)

    @property
    def is_deployed(self) -> bool:
        """Whether workers start with the new version by now."""
        at_s = self.scenario.deployed_at_s
        return at_s is not None and (self.is_healed or self.loop.time() >= at_s)

    async def _live(self, worker: Worker, life: Life, name: str) -> None:
        settings = self.scenario.settings
        try:
            life.loop = await assemble(
                self.plan if life.is_new_version else self.first_plan,
                settings,
                life.log,
                Storage(life.stores, life.disk, MemoryBudget(settings.memory_bytes or 0)),
                worker,
                lambda: self.now_ms() + worker.clock_ms,
            )
            if self.on_start is not None:
                beside = self.on_start(worker, life, name)
                life.watching = asyncio.create_task(beside, context=in_process(None))
            is_grown = not life.is_stopping and await self._run(life.loop, life)
            life.end_watch()
            if not life.stores.is_dead:
                self.trace.note(worker.name, "stopped")
                worker.life = None
                worker.remember_member("")
                life.stores.is_dead = True
                worker.disk.crash()  # whatever it forgot to close
                if is_grown and not life.is_stopping:
                    self.trace.count("begun anew for a source that has grown")
                    self.start(worker)
        except Exception as error:  # noqa: BLE001 - judged here, as the parent of a process judges its exit
            if life.stores.is_dead:
                return
            self.trace.note(worker.name, f"died: {error!r}")
            is_outdated = isinstance(error, IncompatiblePlan) and self.is_deployed and not life.is_new_version
            if is_outdated:  # it had not begun to work when the new version took over: the deploy replaces it
                self.trace.count("outdated")
            elif isinstance(error, (Bug, Misconfigured)) or not isinstance(error, StreamkitError):
                self.failures.append(f"{worker.name} died: {describe(error)}")
                return
            self.trace.count("restarted by its parent")
            await self.start_again(worker)

    async def start_again(self, worker: Worker) -> None:
        """What a parent does with a process that died."""
        self.kill(worker)
        self._restarting += 1
        await asyncio.sleep(0.05)
        self._restarting -= 1
        if worker.life is None:
            self.start(worker)

    async def _run(self, loop: WorkerLoop, life: Life) -> bool:
        """Run a worker loop to its end; whether it ended because a source has grown."""
        if self.scenario.growths:
            return await run_until_grown(loop, life.log.admin(), look_s=LOOK_S)
        await loop.run()
        return False

    def kill(self, worker: Worker) -> bool:
        """kill -9; what the process left running in this simulation can touch nothing any more."""
        life = worker.life
        if life is None:
            return False
        self.trace.note(worker.name, "killed")
        worker.life = None
        life.end_watch()
        life.log.kill()
        life.stores.is_dead = True
        worker.disk.crash()
        return True

    def stop(self, worker: Worker) -> bool:
        """SIGTERM."""
        life = worker.life
        if life is None or life.is_stopping:
            return False
        self.trace.note(worker.name, "is told to stop")
        life.is_stopping = True
        if life.loop is not None:
            life.loop.stop()
        return True

    def move(self, worker: Worker, chance: Random) -> None:
        """Another host takes the place of a dead one: another name, and an empty disk or one that was left behind."""
        self.idle_disks.append(worker.disk)
        pool = self.idle_disks[:-1]
        if pool and chance.random() < 0.5:
            worker.disk = chance.choice(pool)
            self.idle_disks.remove(worker.disk)
        else:
            worker.disk = self.new_disk()
        worker.name = (
            f"{worker.name.partition('_')[0]}_{len(self.disks)}_{len(self.idle_disks)}_{worker.lives}"
        )
        worker.remember_member("")
        worker.remember_writer(None)

    # -- rest -----------------------------------------------------------------------------------------------------

    async def come_to_rest(self) -> None:
        """Wait until everything is processed and committed; it must be within bounds.

        Raises:
            Violation: it was not (I13), or a worker died of something that only a person could mend.
        """
        patience_s = SLOW_PATIENCE_S if self.scenario.work_s else PATIENCE_S
        deadline = self.loop.time() + patience_s
        while (reason := self._restless()) is not None:
            if self.failures:
                raise Violation(self.failures[0])
            if self.loop.time() > deadline:
                raise Violation(f"I13: no rest after {patience_s:.0f} s: {reason}")
            await asyncio.sleep(0.05)

    def _restless(self) -> str | None:
        """Why the pipeline is not at rest; None if it is."""
        if self._restarting:
            return "a worker is about to start again"
        group = self.broker.groups.group(self.plan.name)
        if (unfinished := self._unfinished(group)) is not None:
            return unfinished
        living = [worker for worker in self.workers if worker.life is not None]
        if group.phase is not Phase.STABLE or len(group.members) != len(living):
            return f"the group is {group.phase.value} with {len(group.members)} members for {len(living)} workers"
        for worker in living:
            life = worker.life
            if life is None or life.loop is None or life.disk.is_busy or not is_calm(life.loop, group):
                return f"{worker.name} is busy"
        return None

    def _unfinished(self, group: Group) -> str | None:
        """What is not read yet, or has no marker yet."""
        for partition in self.inputs():
            end = self.broker.topics.partition(partition).end_offset
            if group.positions.get(partition, -1) != end:
                return f"{partition} stands at {group.positions.get(partition)} of {end}"
        if self.broker.transactions.open_count():
            return "a transaction is open"
        return self._holder(group)

    def _holder(self, group: Group) -> str | None:
        """Whose transaction has no marker yet on some partition or position."""
        for transaction in group.pending:
            return f"positions are held by {transaction.writer_id}"
        for topic in self.broker.topics.names():
            for partition in self.broker.topics.topic(topic).partitions:
                for transaction in partition.open:
                    return f"{partition.name} is held by {transaction.writer_id}"
        return None

    def inputs(self) -> list[TopicPartition]:
        topics = [each.topic for stage in self.plan.stages for each in stage.inputs]
        found = [self.broker.topics.find(topic) for topic in topics]
        return [partition.name for topic in found if topic is not None for partition in topic.partitions]

    def changelogs(self) -> list[MemoryPartition]:
        found = [self.broker.topics.find(stage.changelog) for stage in self.plan.stages]
        return [partition for topic in found if topic is not None for partition in topic.partitions]

    def remember_history(self, partition: MemoryPartition) -> dict[int, RawRecord]:
        """Every record that this partition ever had."""
        known = self.history.setdefault(partition.name, {})
        for batch in partition.batches:
            for record in batch.records:
                known.setdefault(record.offset, (record.key, record.value, batch.transaction))
        return known


def describe(error: BaseException) -> str:
    """An error with the place where it was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    code = None if trace is None else trace.tb_frame.f_code
    where = (
        ""
        if code is None or trace is None
        else f" ({code.co_filename.rpartition('/streamkit/')[2]}:{trace.tb_lineno})"
    )
    return f"{type(error).__name__}: {error}{where}"
