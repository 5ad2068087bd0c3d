"""Who reads a topic: pipelines that were named, and others whose workers are at it. Asks; changes nothing."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import msgspec

from streamkit.errors import Misconfigured
from streamkit.graph.cut import pipeline_of_changelog
from streamkit.graph.plan import Plan
from streamkit.kafka.group_calls import PROTOCOL, read_topics
from streamkit.kafka.ports import Admin

# While a round of a group is going on nobody can see what its members read; most are over by then.
ROUND_S = 5.0
LOOK_AGAIN_S = 0.5


class Readers(msgspec.Struct, frozen=True):
    """The pipelines that were named, and by topic what in them keeps state by its partitions, as "stage "x" of pipeline "y"".

    Whoever reads without such state takes new partitions over.
    """

    pipelines: tuple[str, ...] = ()
    bound: Mapping[str, Sequence[str]] = {}


def readers_of(plans: Sequence[Plan]) -> Readers:
    """Which stages of these pipelines keep state by the partitions of which topic."""
    bound: dict[str, list[str]] = {}
    for plan in plans:
        for stage in plan.stages:
            for each in stage.inputs if stage.stores else ():
                bound.setdefault(each.topic, []).append(f'stage "{stage.name}" of pipeline "{plan.name}"')
    return Readers(tuple(plan.name for plan in plans), bound)


async def running_readers(
    topics: Collection[str], admin: Admin, *, known: Collection[str]
) -> dict[str, list[str]]:
    """By topic the pipelines that have workers now and read it, without those that are known.

    A pipeline has a changelog for each stage, and its group has its name. One that we have no right to ask for is passed
    over: it shows the same as one that does not run.
    """
    if not topics:
        return {}
    found = {pipeline_of_changelog(each) for each in await admin.list_topics()}
    others = sorted({each for each in found if each} - {*known})
    read = await asyncio.gather(*(_topics_of(group, admin) for group in others))
    by_group = dict(zip(others, read, strict=True))
    return {
        topic: names for topic in topics if (names := [each for each in others if topic in by_group[each]])
    }


async def _topics_of(group: str, admin: Admin) -> set[str]:
    """What the workers of a pipeline say that they read."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + ROUND_S
    while True:
        try:
            members = await admin.members(group)
        except Misconfigured:
            return set()
        ours = [each for each in members if each.protocol in ("", PROTOCOL)]
        if all(each.claim for each in ours) or loop.time() >= give_up_at:
            return {topic for each in ours if each.claim for topic in read_topics(each.claim)}
        await asyncio.sleep(LOOK_AGAIN_S)
