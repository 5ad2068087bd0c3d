"""Forged records in shuffles: signals that no task has sent, and what is no signal at all.

None of them has a key, as signals have none. What a task could have sent is not among them: nobody can tell it from the truth.
"""

from random import Random

from streamkit.codec.signals import FORMAT_VERSION, SentSignal, encode_signal
from streamkit.codec.values import internal_codec
from streamkit.model.ids import KEY_GROUPS, MAX_TIME
from streamkit.model.signal import EndOfInput, Idle, Signal, Watermark
from streamkit.testing.memory.batch import MemoryBatch
from streamkit.testing.memory.partition import MemoryPartition
from tests.simulation.scenario import EPOCH_MS
from tests.simulation.world import World

DAY_MS = 86_400_000
# Behind everything that clocks may differ by, and that may be allowed.
FAR_FUTURE_MS = 30 * DAY_MS
# Behind all records, and still allowed to whoever may speak.
NEAR_FUTURE_MS = DAY_MS // 4
KINDS = ("future", "end", "stranger", "beyond", "foreign", "old")


def forge(world: World, chance: Random) -> None:
    """Write one such record into a shuffle of the pipeline, if there is one by now."""
    writers = {
        output.topic: stage.changelog
        for stage in world.plan.stages
        for output in stage.outputs
        if output.kind == "shuffle"
    }
    found = [
        (partition, _partitions(world, changelog))
        for topic, changelog in writers.items()
        for partition in _partitions(world, topic)
    ]
    found = [(partition, tasks) for partition, tasks in found if tasks]
    if not found:
        return
    partition, tasks = chance.choice(found)
    kind = chance.choice(KINDS)
    batch = MemoryBatch()
    timestamp = chance.choice((0, world.now_ms(), world.now_ms() + FAR_FUTURE_MS))
    batch.append(0, timestamp, None, _forged(kind, chance, len(tasks)), [])
    world.broker.tick(world.loop.time())
    world.broker.transactions.append(partition.name, batch)
    world.trace.note("stranger", f"forges {kind} in {partition.name}")
    world.trace.count(f"forged {kind}")


def _partitions(world: World, topic: str) -> list[MemoryPartition]:
    found = world.broker.topics.find(topic)
    return [] if found is None else found.partitions


def _forged(kind: str, chance: Random, tasks: int) -> bytes | None:
    """A value of this kind, where so many tasks write."""
    task = chance.randrange(tasks)
    time = chance.choice((EPOCH_MS, EPOCH_MS + NEAR_FUTURE_MS, EPOCH_MS + FAR_FUTURE_MS, MAX_TIME))
    signal: Signal = chance.choice((Watermark(time), Idle(time), EndOfInput()))
    match kind:
        case "future":
            ahead = chance.choice((EPOCH_MS + FAR_FUTURE_MS, MAX_TIME))
            return encode_signal(task, chance.choice((Watermark, Idle))(ahead))
        case "end":
            return encode_signal(task, EndOfInput())
        case "stranger":
            return encode_signal(chance.choice((tasks, tasks + 3, KEY_GROUPS - 1)), signal)
        case "beyond":
            return encode_signal(chance.choice((-1, KEY_GROUPS, 1 << 62)), signal)
        case "old":
            return encode_signal(task, Watermark(chance.choice((0, EPOCH_MS - DAY_MS))))
    newer = internal_codec(SentSignal).encode(SentSignal(FORMAT_VERSION + 1, task, signal))
    return chance.choice((None, b"", b"hello", b"\xc1\xff", encode_signal(task, signal)[:-1], bytes(newer)))
