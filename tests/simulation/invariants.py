"""What must hold when the pipeline has come to rest, checked on the broker's raw memory and not through our client."""

from collections.abc import Iterable, Mapping

import msgspec

from streamkit.codec.signals import decode_signal
from streamkit.codec.values import internal_codec, value_codec
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.model.keys import kafka_partition
from streamkit.model.signal import Idle
from streamkit.progress.channels import Status
from streamkit.progress.task_clock import ClockState
from streamkit.state.changelog import CommitRecord
from streamkit.state.keys import COMMIT_KEY
from streamkit.task.clock_state import CLOCK, decode_clock
from streamkit.task.task import Task
from streamkit.testing.memory.partition import MemoryPartition, MemoryRecord, StoredBatch, TransactionOutcome
from tests.simulation import reference
from tests.simulation.attempts import PUT_OUT
from tests.simulation.families import Family, family_of
from tests.simulation.network import AuditedTransactions
from tests.simulation.pipelines import Event
from tests.simulation.strangers import check_garbage, is_of_strangers
from tests.simulation.world import RawRecord, World


def check_all(world: World) -> list[str]:
    """Every violation that can be seen now."""
    found: list[str] = []
    if world.scenario.settings.guarantee != "exactly_once":
        return [*check_loose(world), *check_open(world)]
    for check in (
        check_output,
        check_letters,
        check_strangers,
        check_log,
        check_positions,
        check_clocks,
        check_waking,
        check_epochs,
        check_state,
        check_disks,
        check_open,
    ):
        found += check(world)
    return found


def committed(partition: MemoryPartition) -> Iterable[StoredBatch]:
    """The batches that readers see."""
    return [batch for batch in partition.batches if partition.is_committed(batch.transaction)]


def partitions(world: World, topic: str) -> list[MemoryPartition]:
    found = world.broker.topics.find(topic)
    return [] if found is None else found.partitions


# I1 - I4, I16: the output.


def check_output(world: World) -> Iterable[str]:
    return reference.check_output(world.scenario, written(world))


def written(world: World) -> reference.Written:
    """What readers of the output see, by key."""
    decode = value_codec(world.scenario.shape_of().out).decode
    found: dict[str, list[tuple[int, object]]] = {}
    for partition in partitions(world, "out"):
        for batch in committed(partition):
            for record in batch.records:
                key = (record.key or b"").decode()
                place = (partition.name.partition, decode(record.value or b""))
                found.setdefault(key, []).append(place)
    return found


def check_letters(world: World) -> Iterable[str]:
    """I16: every record that was set aside is among the dead letters, once."""
    got, wanted = letters(world), reference.letters(world.scenario)
    if got != wanted:
        yield f"I16: dead letters {got}, wanted {wanted}"


def letters(world: World) -> list[reference.Letter]:
    """The dead letters of records that count, sorted."""
    return sorted(
        _letter(record.value or b"", dict(record.headers)["streamkit.topic"] or b"")
        for record in raw_letters(world)
        if not is_of_strangers(record)
    )


def raw_letters(world: World) -> list[MemoryRecord]:
    """All dead letters."""
    found = partitions(world, world.plan.dead_letter_topic)
    return [record for partition in found for batch in committed(partition) for record in batch.records]


def check_strangers(world: World) -> Iterable[str]:
    """I19: what strangers have written into sources is told of as it must be."""
    return check_garbage(world, raw_letters(world))


def check_loose(world: World) -> Iterable[str]:
    """Without transactions: at least once loses no record and no dead letter, at most once repeats none."""
    was_put_out = bool(world.trace.counts[PUT_OUT])
    return reference.check_loose(world.scenario, written(world), letters(world), was_put_out=was_put_out)


def _letter(value: bytes, topic: bytes) -> reference.Letter:
    if value.startswith(b"!"):
        source, key, seq = value[1:].decode().split(" ")
        return (source, key, int(seq))
    codec = internal_codec(Event) if topic.startswith(b"sim.") else value_codec(Event)
    event = codec.decode(value)
    return (event.source, event.key, event.seq)


# I5: the log.


def check_log(world: World) -> Iterable[str]:
    """I5: no transaction is open, and each one ended exactly once on each partition that it wrote to."""
    for topic in world.broker.topics.names():
        for partition in partitions(world, topic):
            if partition.stable_offset != partition.end_offset:
                yield f"I5: {partition.name} is stable to {partition.stable_offset} of {partition.end_offset}"
            if partition.end_offset == 0:
                continue
            seen = partition.read(0, 1 << 60, committed=True)
            view = [] if seen is None else [record.offset for record in seen.records]
            raw = [record.offset for batch in committed(partition) for record in batch.records]
            if view != raw:
                yield f"I5: {partition.name} shows {view}, committed are {raw}"
            for transaction, outcome in partition.decided.items():
                if transaction.outcome is not outcome:
                    yield f"I5: {partition.name} has {outcome} of {transaction.writer_id}, decided was {transaction.outcome}"


# I6, I8: who committed what.


def commits(world: World, partition: MemoryPartition) -> list[tuple[int, CommitRecord, RawRecord]]:
    """The committed commit records of one task, in the order of the log."""
    history = world.remember_history(partition)
    return [
        (offset, CommitRecord.decode(raw[1]), raw)
        for offset, raw in sorted(history.items())
        if raw[0] == COMMIT_KEY and raw[1] is not None and raw[2] is not None
        if raw[2].outcome is TransactionOutcome.COMMITTED
    ]


def check_positions(world: World) -> Iterable[str]:
    """I6: the last commit record names the group's positions, which are the input's end; none ever went back."""
    group = world.broker.groups.group(world.plan.name)
    for stage in world.plan.stages:
        for partition in partitions(world, stage.changelog):
            at: dict[TopicPartition, int] = {}
            span = 0
            for offset, record, _ in commits(world, partition):
                now = _positions(record)
                if any(now.get(each, 0) < before for each, before in at.items()) or record.span <= span:
                    yield f"I6: {partition.name} at {offset}: {record} after {at}, span {span}"
                at, span = now, record.span
            inputs = [TopicPartition(each.topic, partition.name.partition) for each in stage.inputs]
            wanted = {each: group.positions[each] for each in inputs if each in group.positions}
            if at != wanted:
                yield f"I6: {partition.name} was committed at {at}, the group stands at {wanted}"


def _positions(record: CommitRecord) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, partition): offset
        for topic, by_partition in record.positions.items()
        for partition, offset in by_partition.items()
    }


def check_clocks(world: World) -> Iterable[str]:
    """I9: in the order of a task's commits event time never goes back, nor does that of any of its channels.

    There may be more of them for a while, or again fewer, where somebody forges signals of tasks that do not exist.
    """
    is_forged = family_of(world.scenario.seed) is Family.HOSTILE
    for partition in world.changelogs():
        before = ClockState()
        for offset, record, _ in commits(world, partition):
            now = decode_clock(record.extra.get(CLOCK))
            channels = [(now.channels[topic][0], old[0]) for topic, old in before.channels.items()]
            pairs = [(now.watermark, before.watermark), (now.fired, before.fired)]
            pairs += [pair for new, old in channels for pair in zip(new, old, strict=not is_forged)]
            if any(new < old for new, old in pairs) or now.fired > now.watermark:
                yield f"I9: {partition.name} at {offset}: event time {now} after {before}"
            before = now


def check_waking(world: World) -> Iterable[str]:
    """I18: no record of a channel that said it was idle lies in a shuffle before the channel said that it is awake.

    It may have said so in memory, to a reader in the same worker, whose next commit then knows it.
    """
    counts = world.scenario.partitions
    decode = internal_codec(Event).decode
    for topic in world.plan.shuffles() if world.scenario.shape_of().idle_ms is not None else ():
        for partition in partitions(world, topic):
            asleep: set[int] = set()
            for record in (each for batch in committed(partition) for each in batch.records):
                if record.key is None:
                    sent = decode_signal(record.value)
                    (asleep.add if isinstance(sent.signal, Idle) else asleep.discard)(sent.channel)
                    world.trace.count("signal of an idle channel" if sent.channel in asleep else "signal")
                    continue
                event = decode(record.value or b"")
                channel = kafka_partition(event.key.encode(), counts[event.source])
                if channel in asleep and not knows_awake(world, partition.name, record.offset, channel):
                    yield f"I18: {partition.name} at {record.offset}: {event} of a channel that is idle"


def knows_awake(world: World, at: TopicPartition, offset: int, channel: int) -> bool:
    """Whether the last commit of the reader before it read this record says that the channel is awake."""
    (stage,) = [each for each in world.plan.stages if at.topic in {given.topic for given in each.inputs}]
    changelog = world.broker.topics.partition(TopicPartition(stage.changelog, at.partition))
    before = [record for _, record, _ in commits(world, changelog) if _positions(record).get(at, 0) <= offset]
    if not before:
        return False
    _, statuses = decode_clock(before[-1].extra.get(CLOCK)).channels[at.topic]
    return Status(statuses[channel]) is not Status.IDLE


def check_epochs(world: World) -> Iterable[str]:
    """I8: in the order of a task's changelog, generations and epochs only rise, and each generation has one owner."""
    transactions = world.broker.transactions
    assert isinstance(transactions, AuditedTransactions)
    for partition in world.changelogs():
        owner: tuple[int, str] = (-1, "")
        epochs: dict[str, int] = {}
        for offset, record, (_, _, transaction) in commits(world, partition):
            assert transaction is not None
            where = f"{partition.name} at {offset}"
            given = transactions.given.get((transaction.writer_id, transaction.epoch))
            if given is None:
                yield f"I8: {where} was committed without positions, by {transaction.writer_id}"
                continue
            member, positions = given
            if any(positions.get(each) != at for each, at in _positions(record).items()):
                yield f"I6: {where} says {_positions(record)}, its transaction {positions}"
            now = (member.generation, member.member_id)
            if now[0] < owner[0] or (now[0] == owner[0] and now[1] != owner[1]):
                yield f"I8: {where} is of {now}, after {owner}"
            owner = now
            if record.writer_id != transaction.writer_id:
                yield f"I8: {where} names {record.writer_id}, it is of {transaction.writer_id}"
            if transaction.epoch <= epochs.get(transaction.writer_id, -1):
                yield f"I8: {where} has epoch {transaction.epoch} of {transaction.writer_id} after {epochs}"
            epochs[transaction.writer_id] = transaction.epoch


# I7: state.


def fold(history: Mapping[int, RawRecord], end: int) -> dict[bytes, bytes]:
    """What the committed changelog says, up to an offset."""
    state: dict[bytes, bytes] = {}
    for offset, (key, value, transaction) in sorted(history.items(), key=lambda item: item[0]):
        if offset >= end or key is None:
            continue
        if transaction is not None and transaction.outcome is not TransactionOutcome.COMMITTED:
            continue
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def changed_behind(history: Mapping[int, RawRecord], offset: int) -> set[bytes]:
    """The keys of which there is a committed record from this offset on."""
    return {
        key
        for at, (key, _, transaction) in history.items()
        if at >= offset and key is not None
        if transaction is None or transaction.outcome is TransactionOutcome.COMMITTED
    }


def check_state(world: World) -> Iterable[str]:
    """I7: the live state of every running task is the fold of its changelog, and every task has one owner."""
    owners: dict[TaskId, str] = {}
    for worker in world.workers:
        if worker.loop is None:
            continue
        for task_id, task in worker.loop.roster.tasks.items():
            if task_id in owners:
                yield f"I8: {task_id} runs on {owners[task_id]} and {worker.name}"
            owners[task_id] = worker.name
            history = world.remember_history(world.broker.topics.partition(task.changelog))
            wanted = fold(history, task.state.changelog_offset)
            if task.state.changelog_offset <= max(history, default=-1) and fold(history, 1 << 60) != wanted:
                yield f"I7: {task_id} stands at {task.state.changelog_offset} of {max(history)}"
            if live(task) != wanted:
                yield f"I7: {task_id} on {worker.name}: {difference(live(task), wanted)}"


def live(task: Task) -> dict[bytes, bytes]:
    """What a task holds as committed."""
    return dict(task.state.committed_rows.scan(b""))


def check_disks(world: World) -> Iterable[str]:
    """I7: every store on every disk, in use or left behind, is the changelog up to the offset it names.

    One that was being restored when the log was compacted may have missed what a record behind that offset replaces:
    whoever goes on restoring gets that record too.
    """
    changelogs = {stage.name: stage.changelog for stage in world.plan.stages}
    for number, disk in enumerate(world.disks):
        for name, content in sorted(disk._contents.items()):
            stage, _, partition = name.rpartition("-")
            at = world.broker.topics.partition(TopicPartition(changelogs[stage], int(partition)))
            history = world.remember_history(at)
            if content.changelog_offset > at.end_offset:
                yield f"I7: disk {number}, {name}, stands at {content.changelog_offset} of {at.end_offset}"
            wanted = fold(history, content.changelog_offset)
            got = content.entries
            if got != wanted and world.trace.counts["compact"]:
                replaced = changed_behind(history, content.changelog_offset)
                wanted = {key: data for key, data in wanted.items() if key not in replaced}
                got = {key: data for key, data in got.items() if key not in replaced}
            if got != wanted:
                yield f"I7: disk {number}, {name}: {difference(got, wanted)}"


def check_open(world: World) -> Iterable[str]:
    """I14: a worker at rest holds the stores of its tasks open, and no other."""
    for worker in world.workers:
        if worker.loop is None:
            continue
        tasks = worker.loop.roster.tasks
        held = sorted(name for name, store in worker.disk._holders.items() if store.is_open)
        guests = sum(store.is_open for store in worker.disk._guests)
        if guests or held != sorted(f"{task.stage}-{task.partition}" for task in tasks):
            yield f"I14: {worker.name} runs {len(tasks)} tasks, holds {held} and {guests} spare stores open"


def difference(got: Mapping[bytes, bytes], wanted: Mapping[bytes, bytes]) -> str:
    """Where two states differ."""
    keys = [key for key in sorted({*got, *wanted}) if got.get(key) != wanted.get(key)]
    shown = [f"{key!r}: {_show(got.get(key))} instead of {_show(wanted.get(key))}" for key in keys[:3]]
    return f"{len(keys)} differ; " + "; ".join(shown)


def _show(value: bytes | None) -> object:
    if value is None:
        return None
    try:
        return msgspec.msgpack.decode(value)
    except msgspec.MsgspecError:
        return value


def check_end(world: World) -> list[str]:
    """I12: after all have stopped nothing is left behind."""
    found = []
    if world.broker.transactions.open_count():
        found.append("I12: a transaction is open after everybody stopped")
    # A request to join that comes late makes a member that nobody knows of; its session ends it.
    known = {member_id for worker in world.workers for member_id in worker.known_as}
    members = sorted(known & set(world.broker.groups.group(world.plan.name).members))
    if members:
        found.append(f"I12: {members} are in the group after everybody stopped")
    return found
