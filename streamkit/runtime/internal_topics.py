"""internal_topics: the shuffles, changelogs and dead letters of a pipeline, as they must be."""

from collections.abc import Mapping

import msgspec

from streamkit.graph.plan import Plan
from streamkit.model.topic_shape import TopicInfo, TopicSpec

# Kafka must look at its own clock on internal topics: event times may be years old, and retention and the expiry of
# producer state go by the record's timestamp.
BROKER_TIME = {"message.timestamp.type": "LogAppendTime"}
SHUFFLE_CONFIG = {**BROKER_TIME, "cleanup.policy": "delete", "retention.ms": "604800000"}
# Local state that is older than this says nothing about what was deleted since: see `runtime/restore.py`.
TOMBSTONES_KEPT_MS = 86_400_000
CHANGELOG_CONFIG = {
    **BROKER_TIME,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.3",
    "delete.retention.ms": str(TOMBSTONES_KEPT_MS),
}
# A dead letter is as old as its record, and must be kept from the day on which it was set aside.
DEAD_LETTER_CONFIG = {**BROKER_TIME, "cleanup.policy": "delete", "retention.ms": "2592000000"}

# What decides whether records are kept that are needed. The other entries are an operator's to choose.
_GUARDED = ("cleanup.policy", "message.timestamp.type")


class Altered(msgspec.Struct, frozen=True):
    """An internal topic whose configuration somebody changed: what it is, and what it must be."""

    topic: str
    entries: dict[str, str]
    before: dict[str, str | None]

    @property
    def drops_records(self) -> bool:
        """Whether records may be gone: the cleanup policy was another one."""
        return "cleanup.policy" in self.entries

    def __str__(self) -> str:
        return ", ".join(
            f"{entry}={self.before[entry] or 'the default'} instead of {value}"
            for entry, value in self.entries.items()
        )


def internal_topics(plan: Plan, replication: int | None) -> list[TopicSpec]:
    """The internal topics of a resolved plan."""
    widest = max(stage.partitions or 1 for stage in plan.stages)
    return [
        *state_topics(plan, replication),
        TopicSpec(plan.dead_letter_topic, widest, replication, DEAD_LETTER_CONFIG),
    ]


def state_topics(plan: Plan, replication: int | None) -> list[TopicSpec]:
    """Those of them that hold what a pipeline goes on from: without the dead letters, which are for people."""
    return [
        TopicSpec(name, count or 1, replication, config)
        for topics, config in ((plan.shuffles(), SHUFFLE_CONFIG), (plan.changelogs(), CHANGELOG_CONFIG))
        for name, count in topics.items()
    ]


def altered(spec: TopicSpec, info: TopicInfo) -> Altered | None:
    """What of a topic's configuration must be set back; None if nothing."""
    if spec.config is DEAD_LETTER_CONFIG:
        return None
    wrong = {
        entry: spec.config[entry] for entry in _GUARDED if info.effective.get(entry) != spec.config[entry]
    } | _forgets_too_soon(spec, info.effective)
    return Altered(spec.name, wrong, {entry: info.effective.get(entry) for entry in wrong}) if wrong else None


def _forgets_too_soon(spec: TopicSpec, config: Mapping[str, str]) -> dict[str, str]:
    """Tombstones must outlive local state that is brought up to date by them; longer is fine."""
    kept = config.get("delete.retention.ms")
    if spec.config is CHANGELOG_CONFIG and kept is not None and int(kept) < TOMBSTONES_KEPT_MS:
        return {"delete.retention.ms": str(TOMBSTONES_KEPT_MS)}
    return {}
