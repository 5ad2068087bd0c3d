"""The last trial of some runs: somebody deletes internal topics while nobody runs, and a worker comes back."""

import asyncio

from streamkit.model.commit import Guarantee
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_shape import TopicSpec
from tests.simulation.scenario import stream
from tests.simulation.world import World

# How many runs end with it.
SHARE = 0.15
# Longer than a worker looks twice at what it cannot believe.
NOTICED_S = 60.0
LOOK_S = 0.1


def losable(world: World) -> list[str]:
    """Changelogs and shuffles whose loss a worker can and must notice: those that something was committed to."""
    positions = world.broker.groups.group(world.plan.name).positions
    # At most once moves positions before it writes changelogs: its first commit proves nothing.
    least = 2 if world.scenario.settings.guarantee == Guarantee.AT_MOST_ONCE.value else 1
    found = []
    for stage in world.plan.stages:
        its = {
            TopicPartition(each.topic, partition.name.partition): each.kind
            for each in stage.inputs
            for partition in world.broker.topics.topic(each.topic).partitions
        }
        spans = [int(getattr(positions.get(at), "note", None) or 0) for at in its]
        if max(spans, default=0) >= least:
            found.append(stage.changelog)
            found += sorted({at.topic for at, kind in its.items() if kind == "shuffle" and positions.get(at)})
    return found


async def lose_and_look(world: World) -> list[str]:
    """Lose a topic and start a worker; what is wrong if it does not refuse."""
    chance = stream(world.scenario.seed, "losses")
    topics = losable(world)
    if not topics:
        return []
    topic, is_made_anew = chance.choice(topics), chance.random() < 0.5
    world.trace.note("nemesis", f"loses {topic}")
    world.trace.count("lose_topic")
    found = world.broker.topics.topic(topic)
    world.broker.topics.delete([topic])
    world.broker.groups.forget_topics([topic])
    if is_made_anew:
        world.broker.topics.create(TopicSpec(topic, len(found.partitions), config=found.config))
    if chance.random() < 0.5:
        world.add_worker()
    else:
        world.start(world.workers[0])
    for _ in range(int(NOTICED_S / LOOK_S)):
        if world.failures:
            break
        await asyncio.sleep(LOOK_S)
    reasons, world.failures = world.failures, []
    if not any("StateLost" in each or "LogGap" in each for each in reasons):
        return [f"I14: {topic} was lost, and the worker did not say so: {reasons}"]
    return []
