"""What must have become of garbage: each part of a source that nobody can read is told of once, and never twice."""

from collections import Counter
from collections.abc import Iterable

from streamkit.codec.values import value_codec
from streamkit.model.ids import TopicPartition
from streamkit.task.letters import NEXT_OFFSET
from streamkit.testing.memory.partition import MemoryRecord
from tests.simulation.pipelines import STRANGER, Event
from tests.simulation.world import World

Place = tuple[TopicPartition, int, int]


def is_of_strangers(letter: MemoryRecord) -> bool:
    """Whether a dead letter is of what a stranger has written, and not of an input record that counts."""
    if NEXT_OFFSET in dict(letter.headers):
        return True
    value = letter.value or b""
    if value.startswith(b"!"):
        return value[1:].decode().split(" ")[0] == STRANGER
    return b"sim." not in _header(letter, "topic") and value_codec(Event).decode(value).source == STRANGER


def check_garbage(world: World, letters: Iterable[MemoryRecord]) -> Iterable[str]:
    """I19: a stretch that cannot be read has one letter, which names its place; a lying record has one of either kind.

    One whose lie nobody needs to notice may also be run as what it is, and then it fails as itself, or has no effect. One that
    claims to lie before its batch may be taken for one that was read before.
    """
    found = [letter for letter in letters if is_of_strangers(letter)]
    if world.scenario.policy.action == "skip":
        if found:
            yield f"I19: {len(found)} letters of garbage, and the policy is to skip it"
        return
    stretches = Counter(_place(letter) for letter in found if NEXT_OFFSET in dict(letter.headers))
    own = Counter(letter.value for letter in found if letter.value is not None)
    for partition, garbled in world.garbage.of.items():
        for each in garbled:
            place = (partition, each.bad, each.end)
            value = _value(world, partition, each.bad) if each.kind == "lying" else None
            told = stretches.pop(place, 0) + (0 if value is None else own.pop(value, 0))
            is_before = each.kind == "lying" and each.claims < each.start
            if told not in ((0, 1) if is_before else _allowed(value)):
                yield f"I19: {partition} from {each.bad} to {each.end} ({each.kind}) has {told} letters"
    if stretches or own:
        yield f"I19: letters of what nobody garbled: {dict(stretches)} {dict(own)}"


def _allowed(value: bytes | None) -> tuple[int, ...]:
    """How many letters a stretch may have; with the value of the record that lies, if it is one."""
    is_harmless = value is not None and not value.startswith(b"!") and _fate(value) == "drop"
    return (0, 1) if is_harmless else (1,)


def _fate(value: bytes) -> str:
    return value_codec(Event).decode(value).fate


def _value(world: World, partition: TopicPartition, offset: int) -> bytes | None:
    batches = world.broker.topics.partition(partition).batches
    records = (record for batch in batches for record in batch.records)
    return next(record.value for record in records if record.offset == offset)


def _place(letter: MemoryRecord) -> Place:
    at = TopicPartition(_header(letter, "topic").decode(), int(_header(letter, "partition")))
    return (at, int(_header(letter, "offset")), int(_header(letter, "next-offset")))


def _header(letter: MemoryRecord, name: str) -> bytes:
    return dict(letter.headers)[f"streamkit.{name}"] or b""
