"""The log in memory under every fault at once: workers that only trust the ports copy each record exactly once.

This is what the fencing is for. It also proves that the broker's checks matter: with any of them taken out, the
same workers on the same seeds lose or double records.
"""

import asyncio
from random import Random

import pytest

from streamkit.errors import Fenced, Retry
from streamkit.kafka.ports import Assignment, MemberOptions, StageTasks, WriterOptions
from streamkit.model.commit import Commit, Guarantee, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.testing.memory import Fate, MemoryBroker, MemoryLog, SeededNetwork
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.memory.groups import Groups
from streamkit.testing.memory.refusal import ErrorCode, Refused
from streamkit.testing.memory.transactions import Transactions, WriterRecord
from streamkit.testing.virtual_time import VirtualLoop, run

PARTITIONS = 4
RECORDS = 200
SEEDS = range(8)
FAULTS = {Fate.REQUEST_LOST: 0.002, Fate.REPLY_LOST: 0.002, Fate.REQUEST_LATE: 0.002}


class Copier:
    """A worker: reads its partitions of `in`, writes them to `out`, and trusts nothing but the ports."""

    def __init__(self, broker: MemoryBroker, network: SeededNetwork, name: str) -> None:
        self.log = MemoryLog(broker, network, fetch_bytes_max=1)
        self.admin = self.log.admin()
        self.network = network
        options = MemberOptions(
            "copy", name, (StageTasks("copy", PARTITIONS),), session_timeout_s=6, rebalance_timeout_s=10
        )
        self.membership = self.log.membership(options)
        self.writer = self.log.writer(
            WriterOptions(name, Guarantee.EXACTLY_ONCE, transaction_timeout_s=8.0, request_timeout_s=2.0)
        )

    async def run(self) -> None:
        while True:
            assignment = await self.membership.join(())
            try:
                while not self.membership.rejoin_needed:
                    try:
                        await self.copy(assignment)
                    except Retry:
                        await asyncio.sleep(0.1)
            except Fenced:
                continue

    async def copy(self, assignment: Assignment) -> None:
        """From the committed positions on, until the group changes or something is in doubt."""
        await self.writer.open()
        mine = [TopicPartition("in", task.partition) for task in assignment.tasks]
        positions = await self.admin.positions("copy", mine, timeout_s=5.0)
        reader = self.log.reader(committed=True)
        for partition in mine:
            reader.seek(partition, positions.get(partition, 0))
        while not self.membership.rejoin_needed:
            batches, moved = [], {}
            for fetched in await reader.poll(0.5):
                batch = self.writer.batch()
                values = [each.value for each in fetched.records if each.offset >= fetched.first_offset]
                for index, value in enumerate(values):
                    batch.append(index, 0, None, value, [])
                moved[fetched.partition] = fetched.next_offset
                if values:
                    batches.append(
                        OutBatch(TopicPartition("out", fetched.partition.partition), batch, len(values))
                    )
            if moved:
                await self.writer.commit(Commit(batches, moved, assignment.member))


class Scene:
    """A broker with everything still to be copied, and workers that come, freeze, and are killed."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        # Markers are written soon, or now and then much later.
        delays = [0.0, 0.01, 0.05, 0.05, 5.0]
        self.broker = MemoryBroker(marker_delay_s=lambda: random.choice(delays) * random.random())
        self.workers: list[tuple[Copier, asyncio.Task[None]]] = []
        for topic in ("in", "out"):
            self.broker.topics.create(TopicSpec(topic, PARTITIONS))
        for number in range(PARTITIONS * RECORDS):
            batch = MemoryBatch()
            batch.append(0, 0, None, b"%d" % (number // PARTITIONS), [])
            self.broker.transactions.append(TopicPartition("in", number % PARTITIONS), batch)

    def start(self, name: str) -> None:
        network = SeededNetwork(self.random, delay_s_max=0.02)
        network.chances = FAULTS
        copier = Copier(self.broker, network, name)
        self.workers.append((copier, asyncio.create_task(copier.run())))

    def strike(self) -> str:
        """Wake whoever sleeps, as a zombie, and hurt one worker; the name of the one who comes in its place."""
        for zombie, _ in self.workers:
            zombie.network.heal()
            zombie.network.thaw()
        victim, _ = self.random.choice(self.workers)
        self.random.choice(
            [victim.log.kill, victim.network.freeze, victim.network.freeze, victim.network.cut]
        )()
        # Who is killed is started again under its name; who only sleeps is replaced by a stranger.
        return victim.writer.writer_id if victim.network.is_killed else f"w{len(self.workers)}"

    def calm(self) -> None:
        for copier, _ in self.workers:
            copier.network.chances = {}
            copier.network.heal()
            copier.network.thaw()

    def end(self) -> None:
        for copier, task in self.workers:
            task.cancel()
            copier.log.kill()


async def torment(seed: int) -> list[list[bytes | None]]:
    """Copy everything while workers are killed, frozen and replaced; what `out` holds in the end."""
    scene = Scene(seed)
    scene.start("w0")
    for _ in range(6):
        await asyncio.sleep(scene.random.random() * 12)
        scene.start(scene.strike())
    scene.calm()
    for _ in range(60):
        await asyncio.sleep(2)
        if sum(len(values) for values in outputs(scene.broker)) >= PARTITIONS * RECORDS:
            break
    await asyncio.sleep(5)  # whoever would double a record has time to do it
    scene.end()
    return outputs(scene.broker)


def outputs(broker: MemoryBroker) -> list[list[bytes | None]]:
    """The committed values of each partition of `out`."""
    stored = [broker.topics.partition(TopicPartition("out", number)) for number in range(PARTITIONS)]
    reads = [partition.read(0, 1 << 30, committed=True) for partition in stored]
    return [[] if read is None else [record.value for record in read.records] for read in reads]


EXPECTED = [[b"%d" % number for number in range(RECORDS)]] * PARTITIONS


def test_every_record_is_copied_once_and_in_order_under_every_fault() -> None:
    for seed in SEEDS:
        assert run(torment(seed), seed) == EXPECTED, f"seed {seed}"


def test_a_seed_replays_to_the_letter() -> None:
    async def traced() -> tuple[int, int]:
        await torment(3)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return loop.steps, loop.trace

    assert run(traced(), 3) == run(traced(), 3)


def some_seed_fails(first: int = 0) -> bool:
    """Whether one of many seeds shows it; `first` is one that did when this was written."""
    return any(run(torment(seed), seed) != EXPECTED for seed in range(first, first + 100))


def test_without_the_check_of_the_generation_records_are_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Groups, "check", lambda _self, _member: None)
    assert some_seed_fails()


def test_without_the_check_of_the_epoch_records_are_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    def check(self: Transactions, writer_id: str, epoch: int) -> WriterRecord:
        writer = self._writers.get(writer_id)
        if writer is None:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH, writer_id)
        return writer

    monkeypatch.setattr(Transactions, "_check", check)
    assert some_seed_fails()


def test_without_waiting_for_pending_positions_records_are_doubled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamkit.testing.memory.groups.Group.is_pending", lambda _self, _partition: False)
    assert some_seed_fails(12)
