"""prepare: what must be true of the cluster before a pipeline can start, and making it so.

Topics of the user are only looked at: creating them is the user's decision (`streamkit topics apply`). Internal
topics (shuffles, changelogs, dead letters) are ours: missing ones are created, others must fit.
"""

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from streamkit.errors import Misconfigured
from streamkit.graph.plan import Plan
from streamkit.graph.resolve import resolve
from streamkit.kafka.ports import Admin, TopicSpec
from streamkit.runtime.limits import TopicLimits, limits_of

log = structlog.get_logger()

# Brokers hear of a new topic one after the other, a laden one seconds later. Whoever creates topics and starts workers
# in one breath must not be told that there are none.
HEARD_S = 5.0
LOOK_AGAIN_S = 0.25

# Kafka must look at its own clock on internal topics: event times may be years old, and retention and the expiry of
# producer state go by the record's timestamp.
_BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
SHUFFLE_CONFIG = {**_BROKER_TIME, "cleanup.policy": "delete", "retention.ms": "604800000"}
# Local state that is older than this says nothing about what was deleted since: see `runtime/restore.py`.
TOMBSTONES_KEPT_MS = 86_400_000
CHANGELOG_CONFIG = {
    **_BROKER_TIME,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.3",
    "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
}
# A dead letter is as old as its record, and must be kept from the day on which it was set aside.
DEAD_LETTER_CONFIG = {**_BROKER_TIME, "cleanup.policy": "delete", "retention.ms": "2592000000"}


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: a topic, and whether it is as it must be."""

    what: str
    good: bool
    detail: str = ""
    hint: str = ""


class Prepared(msgspec.Struct, frozen=True):
    """A plan that fits the cluster: partition counts known, internal topics known or to be made."""

    plan: Plan
    partition_counts: dict[str, int]
    limits: dict[str, TopicLimits]
    missing: tuple[TopicSpec, ...]
    findings: tuple[Finding, ...]
    # Whether there is a dead-letter topic that goes by the records' timestamps, as older versions made it.
    has_fleeting_letters: bool = False

    def require(self) -> None:
        """Raise for the first thing that a person must change.

        Raises:
            Misconfigured: a topic is missing or has another shape than the pipeline needs.
        """
        for finding in self.findings:
            if not finding.good:
                raise Misconfigured(finding.what, detail=finding.detail, hint=finding.hint)


async def inspect(plan: Plan, admin: Admin, replication: int | None = None) -> Prepared:
    """Compare the plan with the cluster; changes nothing."""
    wanted = [*plan.sources(), *plan.sinks(), *plan.shuffles(), *plan.changelogs(), plan.dead_letter_topic]
    existing = await admin.partitions(wanted)
    findings = [_user_topic(topic, existing) for topic in dict.fromkeys([*plan.sources(), *plan.sinks()])]
    if not all(finding.good for finding in findings):
        return Prepared(plan, dict(existing), {}, (), tuple(findings))
    resolved = resolve(plan, existing)
    missing: list[TopicSpec] = []
    counts = dict(existing)
    for spec in _internal_topics(resolved, replication):
        have = existing.get(spec.name)
        counts[spec.name] = spec.partitions if have is None else have
        if have is None:
            missing.append(spec)
        findings.append(_internal_topic(spec, have))
    described = await admin.describe(existing)
    limits = {name: limits_of(info) for name, info in described.items()}
    letters = described.get(plan.dead_letter_topic)
    is_fleeting = letters is not None and not letters.effective.items() >= _BROKER_TIME.items()
    return Prepared(resolved, counts, limits, tuple(missing), tuple(findings), is_fleeting)


async def prepare(plan: Plan, admin: Admin, replication: int | None = None) -> Prepared:
    """As `inspect`, then create the internal topics that are missing.

    Raises:
        Misconfigured: a person must change something first.
    """
    prepared = await _inspect_patiently(plan, admin, replication)
    prepared.require()
    if prepared.missing:
        await admin.create(prepared.missing)
    has_mended = prepared.has_fleeting_letters and await _keep_letters(plan.dead_letter_topic, admin)
    if prepared.missing or has_mended:
        # Another worker may have been quicker, with another plan.
        prepared = await inspect(plan, admin, replication)
        prepared.require()
    return prepared


async def _keep_letters(topic: str, admin: Admin) -> bool:
    """Let the broker keep dead letters by its own clock from now on; whether it could be set."""
    try:
        await admin.configure(topic, _BROKER_TIME)
    except Misconfigured as error:
        log.warning(
            "dead letters of old records are deleted early: their topic goes by the records' timestamps",
            topic=topic,
            error=str(error),
            hint="set message.timestamp.type of the topic to LogAppendTime",
        )
        return False
    log.info("dead letters are kept by the broker's clock now", topic=topic, set=_BROKER_TIME)
    return True


async def _inspect_patiently(plan: Plan, admin: Admin, replication: int | None) -> Prepared:
    """As `inspect`, but wait a while for topics that may have been created a moment ago."""
    give_up_at: float | None = None
    while True:
        prepared = await inspect(plan, admin, replication)
        missing = {*plan.sources(), *plan.sinks()} - prepared.partition_counts.keys()
        now_s = asyncio.get_running_loop().time()
        if give_up_at is None:
            give_up_at = now_s + HEARD_S
            if missing:
                log.info("waiting for topics", missing=sorted(missing), at_most_s=HEARD_S)
        if not missing or now_s >= give_up_at:
            return prepared
        await asyncio.sleep(LOOK_AGAIN_S)


def _internal_topics(plan: Plan, replication: int | None) -> list[TopicSpec]:
    specs = [
        TopicSpec(name, count or 1, replication, config)
        for topics, config in ((plan.shuffles(), SHUFFLE_CONFIG), (plan.changelogs(), CHANGELOG_CONFIG))
        for name, count in topics.items()
    ]
    widest = max(stage.partitions or 1 for stage in plan.stages)
    return [*specs, TopicSpec(plan.dead_letter_topic, widest, replication, DEAD_LETTER_CONFIG)]


def _user_topic(topic: str, existing: Mapping[str, int]) -> Finding:
    if topic in existing:
        return Finding(f'topic "{topic}"', good=True, detail=f"{existing[topic]} partitions")
    return Finding(
        f'topic "{topic}" does not exist',
        good=False,
        hint=f"declare it in topics/{topic}.toml and run `streamkit topics apply --execute`",
    )


def _internal_topic(spec: TopicSpec, have: int | None) -> Finding:
    if have is None:
        return Finding(
            f'internal topic "{spec.name}"',
            good=True,
            detail=f"will be created, {spec.partitions} partitions",
        )
    if have != spec.partitions and spec.config is not DEAD_LETTER_CONFIG:
        return Finding(
            f'internal topic "{spec.name}" has {have} partitions, the pipeline needs {spec.partitions}',
            good=False,
            detail="a new count moves keys to other partitions, away from their state",
            hint="give the number of partitions back its former value, or start under a new pipeline name",
        )
    return Finding(f'internal topic "{spec.name}"', good=True, detail=f"{have} partitions")
