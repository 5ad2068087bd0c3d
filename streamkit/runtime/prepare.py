"""prepare: what must be true of the cluster before a pipeline can start, and making it so.

Topics of the user are only looked at: creating them is the user's decision (`streamkit topics apply`). Internal
topics (shuffles, changelogs, dead letters) are ours: missing ones are created, others must fit, and hold what was
committed to them (`runtime/lost_state.py`). An altered configuration is set back where nothing can have been lost by it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec
import structlog

from streamkit.config import Settings
from streamkit.errors import LogGap, Misconfigured, Retry, StateLost, StreamkitError
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from streamkit.kafka.ports import Admin
from streamkit.model.commit import Guarantee
from streamkit.model.finding import Finding, finding_of
from streamkit.model.ids import TopicPartition
from streamkit.model.topic_name import did_you_mean
from streamkit.model.topic_shape import TopicSpec, so_many
from streamkit.runtime.internal_topics import (
    BROKER_TIME,
    DEAD_LETTER_CONFIG,
    Altered,
    altered,
    internal_topics,
)
from streamkit.runtime.lost_state import BEGIN_ANEW, find_losses, shuffle_compacted
from streamkit.task.limits import TopicLimits, limits_of

log = structlog.get_logger()

# Brokers hear of a new topic one after the other, a laden one seconds later. Whoever creates topics and starts workers
# in one breath must not be told that there are none.
HEARD_S = 5.0
LOOK_AGAIN_S = 0.25
# A transaction of a worker that is gone holds positions for as long as its time-out and the broker's round of looking.
POSITIONS_S = 45.0


def no_topic(topic: str, there: Iterable[str] = ()) -> Misconfigured:
    """The error for a topic of the user's that does not exist, among those that do."""
    return Misconfigured(
        f'topic "{topic}" does not exist',
        hint=f"{did_you_mean(topic, there)}declare it in topics/{topic}.toml (`partitions = 4` is enough) and run `streamkit topics apply --execute`",
    )


_ERRORS = {error.code: error for error in (StateLost, LogGap)}
_NO_SETTINGS = Settings()


class Prepared(msgspec.Struct, frozen=True):
    """A plan that fits the cluster: partition counts known, internal topics known or to be made."""

    plan: Plan
    partition_counts: dict[str, int]
    limits: dict[str, TopicLimits]
    missing: tuple[TopicSpec, ...]
    findings: tuple[Finding, ...]
    altered: tuple[Altered, ...] = ()
    # Whether there is a dead-letter topic that goes by the records' timestamps, as older versions made it.
    has_fleeting_letters: bool = False
    # Changelogs of stages without state that need more partitions, because a source has grown.
    grown: tuple[TopicSpec, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether nothing needs a person."""
        return all(finding.good for finding in self.findings)

    def require(self) -> None:
        """Raise for the first thing that a person must change, and name the others.

        Raises:
            Misconfigured: a topic is missing or has another shape than the pipeline needs.
        """
        bad = [finding for finding in self.findings if not finding.good]
        if bad:
            first, *others = bad
            also = "; ".join(["", *(f"also: {other.what}" for other in others)])
            error = _ERRORS.get(first.code, Misconfigured)
            raise error(
                first.what, where=first.where, detail=(first.detail + also).lstrip("; "), hint=first.hint
            )


async def inspect(plan: Plan, admin: Admin, settings: Settings = _NO_SETTINGS) -> Prepared:
    """Compare the plan with the cluster; changes nothing."""
    wanted = [*plan.sources(), *plan.sinks(), *plan.shuffles(), *plan.changelogs(), plan.dead_letter_topic]
    existing = await admin.partitions(wanted)
    own = dict.fromkeys([*plan.sources(), *plan.sinks()])
    there = [] if existing.keys() >= own.keys() else await _listed(admin)
    findings = [_user_topic(topic, existing, there) for topic in own]
    if not all(finding.good for finding in findings):
        return Prepared(plan, dict(existing), {}, (), tuple(findings))
    resolved = resolve(plan, _trusted(plan, existing))
    described = await admin.describe(existing)
    missing: list[TopicSpec] = []
    changed: list[Altered] = []
    growing = _growing(resolved, existing)
    counts = dict(existing)
    for spec in internal_topics(resolved, settings.replication):
        info = described.get(spec.name)
        counts[spec.name] = existing.get(spec.name, spec.partitions)
        change = None if info is None else altered(spec, info)
        if spec.name not in existing:
            missing.append(spec)
        if change is not None:
            changed.append(change)
        findings.append(
            _internal_topic(spec, existing.get(spec.name), change, is_growing=spec.name in growing)
        )
    losses = await find_losses(resolved, admin, existing, Guarantee(settings.guarantee))
    losses += [
        shuffle_compacted(each) for each in changed if await _may_have_lost_records(resolved, admin, each)
    ]
    findings += [finding_of(loss) for loss in losses]
    grown = tuple(
        spec
        for spec in internal_topics(resolved, settings.replication)
        if spec.name in growing and spec.name in existing
    )
    limits = {name: limits_of(info) for name, info in described.items()}
    letters = described.get(plan.dead_letter_topic)
    is_fleeting = letters is not None and not letters.effective.items() >= BROKER_TIME.items()
    return Prepared(
        resolved, counts, limits, tuple(missing), tuple(findings), tuple(changed), is_fleeting, grown
    )


def _trusted(plan: Plan, existing: Mapping[str, int]) -> dict[str, int]:
    """The counts to go by: those of shuffles only where the stage behind was made for that many.

    If one of the two was deleted, the other still tells how many there were: its source may have grown since.
    """
    readers = {each.topic: stage.changelog for stage in plan.stages for each in stage.inputs}
    shuffles = plan.shuffles()
    made = {topic: existing[readers[topic]] for topic in shuffles if readers[topic] in existing}
    return made | {
        topic: count
        for topic, count in existing.items()
        if topic not in shuffles or count <= made.get(topic, count)
    }


def _growing(plan: Plan, existing: Mapping[str, int]) -> set[str]:
    """The changelogs that get more partitions: keys of a stage without state have nothing to be torn from."""
    return {
        stage.changelog
        for stage in plan.stages
        if not stage.stores and existing.get(stage.changelog, 0) < (stage.partitions or 0)
    }


async def _may_have_lost_records(plan: Plan, admin: Admin, change: Altered) -> bool:
    """Whether an altered shuffle may have been compacted before all of it was read.

    A changelog tells by its first offset whether anything was deleted, see `find_losses`.
    """
    if not change.drops_records or change.topic not in plan.shuffles():
        return False
    partitions = [
        TopicPartition(change.topic, number) for number in range(plan.shuffles()[change.topic] or 0)
    ]
    positions = await admin.positions(plan.group, partitions, timeout_s=POSITIONS_S)
    ends = await admin.end_offsets(partitions, committed=False)
    return any(positions.get(place, 0) < end for place, end in ends.items())


async def _nothing_else(_: Prepared) -> None:
    pass


async def prepare(
    plan: Plan,
    admin: Admin,
    settings: Settings = _NO_SETTINGS,
    require: Callable[[Prepared], Awaitable[None]] = _nothing_else,
) -> Prepared:
    """As `inspect`, then create the internal topics that are missing and set back what was altered.

    `require` may refuse the plan for something else, before anything is changed; it is asked only if something would be.

    Raises:
        Misconfigured: a person must change something first.
    """
    prepared = await _inspect_patiently(plan, admin, settings)
    prepared.require()
    if prepared.missing or prepared.grown or prepared.altered:
        await require(prepared)
    for change in prepared.altered:
        log.warning("the configuration of an internal topic is set back", topic=change.topic, was=str(change))
        await admin.configure(change.topic, change.entries)
    if prepared.missing:
        await admin.create(prepared.missing)
    has_mended = prepared.has_fleeting_letters and await _keep_letters(plan.dead_letter_topic, admin)
    refused = await _grow(prepared.grown, admin)
    if prepared.missing or prepared.grown or has_mended:
        # Another worker may have been quicker, with another plan.
        prepared = await _inspect_grown(plan, admin, settings)
        prepared.require()
    if prepared.grown:
        spec = prepared.grown[0]
        was = refused.get(spec.name)
        raise _not_grown(spec, was if was and prepared.partition_counts[spec.name] < was[0] else None)
    return prepared


async def _grow(changelogs: Iterable[TopicSpec], admin: Admin) -> dict[str, tuple[int, Misconfigured]]:
    """Ask for partitions; by topic how many were refused, and why, which may be that another worker was quicker."""
    refused: dict[str, tuple[int, Misconfigured]] = {}
    for spec in changelogs:
        log.info("a changelog gets more partitions", topic=spec.name, partitions=spec.partitions)
        try:
            await admin.add_partitions(spec.name, spec.partitions)
        except Misconfigured as error:
            refused[spec.name] = (spec.partitions, error)
    return refused


async def _inspect_grown(plan: Plan, admin: Admin, settings: Settings) -> Prepared:
    """As `inspect`, but wait a while for partitions that were added a moment ago."""
    give_up_at = asyncio.get_running_loop().time() + HEARD_S
    while True:
        prepared = await inspect(plan, admin, settings)
        if not prepared.grown or asyncio.get_running_loop().time() >= give_up_at:
            return prepared
        await asyncio.sleep(LOOK_AGAIN_S)


def _not_grown(spec: TopicSpec, refused: tuple[int, Misconfigured] | None) -> StreamkitError:
    """A changelog that has too few: a broker is slow, or will never do it; or its source has grown once more meanwhile."""
    problem = f'changelog "{spec.name}" did not get more partitions'
    if refused is None:
        return Retry(problem, detail="they were asked for, and no broker shows them yet")
    _, error = refused
    return Misconfigured(
        problem,
        where=error.where,
        detail=": ".join(each for each in (error.problem, error.detail) if each),
        hint=f"a source has grown, and this topic follows: allow the workers' user to alter it, or give it\n"
        f"{so_many(spec.partitions)} by hand, then start the workers again",
    )


async def _keep_letters(topic: str, admin: Admin) -> bool:
    """Let the broker keep dead letters by its own clock from now on; whether it could be set."""
    try:
        await admin.configure(topic, BROKER_TIME)
    except Misconfigured as error:
        log.warning(
            "dead letters of old records are deleted early: their topic goes by the records' timestamps",
            topic=topic,
            error=str(error),
            hint="set message.timestamp.type of the topic to LogAppendTime",
        )
        return False
    log.info("dead letters are kept by the broker's clock now", topic=topic, set=BROKER_TIME)
    return True


async def _inspect_patiently(plan: Plan, admin: Admin, settings: Settings) -> Prepared:
    """As `inspect`, but wait a while for topics that may have been created a moment ago, and look twice at losses."""
    give_up_at: float | None = None
    while True:
        prepared = await inspect(plan, admin, settings)
        missing = {*plan.sources(), *plan.sinks()} - prepared.partition_counts.keys()
        is_lost = any(finding.code in _ERRORS for finding in prepared.findings)
        now_s = asyncio.get_running_loop().time()
        if give_up_at is None:
            give_up_at = now_s + HEARD_S
            if missing:
                log.info("waiting for topics", missing=sorted(missing), at_most_s=HEARD_S)
        if not (missing or is_lost) or now_s >= give_up_at:
            return prepared
        await asyncio.sleep(LOOK_AGAIN_S)


async def _listed(admin: Admin) -> list[str]:
    """The topics that there are, for a hint; none if nobody answers: there is something else to say."""
    try:
        return await admin.list_topics()
    except StreamkitError:
        return []


def _user_topic(topic: str, existing: Mapping[str, int], there: Iterable[str]) -> Finding:
    if topic in existing:
        return Finding(f'topic "{topic}"', good=True, detail=so_many(existing[topic]))
    return finding_of(no_topic(topic, there))


def _internal_topic(
    spec: TopicSpec, have: int | None, change: Altered | None, *, is_growing: bool
) -> Finding:
    if have is None:
        return Finding(
            f'internal topic "{spec.name}"',
            good=True,
            detail=f"will be created, {so_many(spec.partitions)}",
        )
    if is_growing:
        return Finding(
            f'internal topic "{spec.name}"',
            good=True,
            detail=f"{so_many(have)}, will have {spec.partitions}: a source has grown",
        )
    if have != spec.partitions and spec.config is not DEAD_LETTER_CONFIG:
        return finding_of(
            Misconfigured(
                f'internal topic "{spec.name}" has {so_many(have)}, the pipeline needs {spec.partitions}',
                detail="a new count moves keys to other partitions, away from their state",
                hint=f"give the number of partitions back its former value, start under a new pipeline name, or\n{BEGIN_ANEW}",
            )
        )
    detail = so_many(have) if change is None else f"{so_many(have)}; will be set back: {change}"
    return Finding(f'internal topic "{spec.name}"', good=True, detail=detail)
