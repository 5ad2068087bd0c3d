"""Sources that get more partitions while workers run: the scenario of a plain seed, with growth and what is sent then.

Records of a key stay in their partition, or nobody could say in which order they come: only keys that nobody has seen
before go to the new ones.
"""

from collections.abc import Iterator

import msgspec

from streamkit.model.keys import kafka_partition
from tests.simulation.families import Family
from tests.simulation.pipelines import SHAPES, Event, Fate
from tests.simulation.scenario import FAIR, Bias, Growth, Load, Scenario, draw, stream

# How often workers look for new partitions here.
LOOK_S = 0.3
# Where a stage keeps state by the source's own partitions a person must decide.
GROWING_SHAPES = tuple(shape.name for shape in SHAPES if shape.name != "keyed")
FATES: tuple[Fate, ...] = ("fine",) * 20 + ("drop", "raise_early", "undecodable")


def draw_growing(seed: int, bias: Bias = FAIR) -> Scenario:
    """The scenario of a seed from `Family.GROWING` on."""
    shapes = bias.shapes or GROWING_SHAPES
    plain = draw(seed - Family.GROWING, msgspec.structs.replace(bias, shapes=shapes))
    growths = tuple(sorted(_growths(seed, plain), key=lambda growth: growth.at_s))
    later = [load for number, growth in enumerate(growths) for load in _loads(seed, number, growth)]
    loads = tuple(sorted((*plain.loads, *later), key=lambda load: load.at_s))
    return msgspec.structs.replace(plain, seed=seed, loads=loads, growths=growths)


def _growths(seed: int, plain: Scenario) -> Iterator[Growth]:
    """One source grows, or each of them, some of them twice."""
    chance = stream(seed, "growth")
    for topic in plain.shape_of().sources:
        count = plain.partitions[topic]
        for at_s in sorted(chance.uniform(0.0, 3.0) for _ in range(chance.choice((1, 1, 2)))):
            count += chance.randint(1, 3)
            yield Growth(at_s, topic, count)


def _loads(seed: int, number: int, growth: Growth) -> Iterator[Load]:
    chance = stream(seed, f"load {number}")
    keys = [f"k{100 * (number + 1) + each}" for each in range(chance.randint(1, 8))]
    seqs = dict.fromkeys(keys, 0)
    for at_s in sorted(growth.at_s + chance.uniform(0.0, 2.0) for _ in range(chance.randint(1, 12))):
        key = chance.choice(keys)
        events = []
        for _ in range(chance.randint(1, 5)):
            seqs[key] += 1
            events.append((key, Event(growth.topic, key, seqs[key], chance.choice(FATES))))
        partition = kafka_partition(key.encode(), growth.partitions)
        yield Load(at_s, growth.topic, partition, chance.choice(("plain", "committed")), tuple(events))
