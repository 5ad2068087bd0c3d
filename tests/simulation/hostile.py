"""Histories in which somebody with nothing but WRITE writes garbage: into sources what nobody can read, into shuffles what no
task has sent. And pipelines whose functions work in place, and raise when they have done so.

All of it is set aside or passed over; nothing else may change, and no event time be carried away.
"""

from collections.abc import Iterator
from random import Random

import msgspec

from streamkit.model.keys import kafka_partition
from tests.simulation.garbage import GARBLED
from tests.simulation.pipelines import LATE_MS, STRANGER, Event, Fate
from tests.simulation.scenario import EPOCH_MS, FAIR, PACE, Action, Bias, Load, Scenario, draw, stream

# What becomes of a lying record if nobody notices its lie: it does no harm, or fails at a place that is not its own.
LIES: tuple[Fate, ...] = ("drop", "raise_early", "undecodable")


def draw_hostile(seed: int, bias: Bias = FAIR) -> Scenario:
    """The scenario of a seed from `Family.HOSTILE` on."""
    peaceful = draw(seed, bias)
    chance = stream(seed, "hostile")
    settings = msgspec.structs.replace(peaceful.settings, skip_foreign=True)
    end_s = max(load.at_s for load in peaceful.loads)
    loads = [*peaceful.loads, *_garbled(stream(seed, "garbled"), peaceful, end_s)]
    forging = [_forging(at_s) for at_s in _times(chance, end_s + 0.3, (0, 2, 6, 20))]
    return msgspec.structs.replace(
        peaceful,
        settings=settings,
        loads=tuple(sorted(loads, key=lambda load: load.at_s)),
        actions=tuple(sorted((*peaceful.actions, *forging), key=lambda action: action.at_s)),
    )


def _garbled(chance: Random, scenario: Scenario, end_s: float) -> Iterator[Load]:
    """Batches that begin with good records, of keys that nobody else has, and end in what cannot be read."""
    shape = scenario.shape_of()
    for number, at_s in enumerate(_times(chance, end_s * 0.99, (0, 1, 3, 10))):
        topic, key = chance.choice(shape.sources), f"k{100 + number}"
        manner = chance.choice(GARBLED)
        good = 0 if manner == "bomb" else chance.choice((0, 1, 2, 5))
        bad = 1 if manner == "lying" else chance.randint(1, 3)
        at = EPOCH_MS + int(at_s * 1000 * PACE) + chance.randrange(LATE_MS) if shape.is_timed else 0
        events = [Event(topic, key, seq, "fine", at) for seq in range(1, good + 1)]
        events += [Event(STRANGER, key, seq, chance.choice(LIES), at) for seq in range(bad)]
        partition = kafka_partition(key.encode(), scenario.partitions[topic])
        yield Load(at_s, topic, partition, manner, tuple((key, event) for event in events))


def _times(chance: Random, end_s: float, counts: tuple[int, ...]) -> list[float]:
    return sorted(chance.uniform(0.0, end_s) for _ in range(chance.choice(counts)))


def _forging(at_s: float) -> Action:
    return Action(at_s, "forge", 0, 0.0, "", False, (0.0, 0.0, 0.0))
