"""limits: what an output topic takes, known before anything is written to it.

A broker refuses a whole batch for one record that breaks a rule of its topic, and with it the commit of every task of the
worker. So the rules are read when a worker starts (`runtime/prepare.py`) and again after a refusal, and
`task/emit.py` judges each record by them: the pipeline's error policy then deals with that record alone.
"""

import msgspec

from streamkit.model.topic_shape import TopicInfo

# What a batch needs beside its records, generously: the topic's limit counts it too.
BATCH_HEAD_BYTES = 128
# Kafka's way to say "no limit".
_ENDLESS = 2**63 - 1


class TopicLimits(msgspec.Struct, frozen=True):
    """The rules of one topic; None where there is none."""

    # The largest batch, and so the largest record.
    record_bytes_max: int | None = None
    # A compacted topic takes no record without a key.
    needs_key: bool = False
    # How far a timestamp may lie behind and ahead of the broker's clock. The hour is Kafka 4's own default.
    before_ms_max: int | None = None
    after_ms_max: int | None = 3_600_000
    # The broker soon deletes what is older, going by the timestamps that we give.
    retention_ms: int | None = None


def limits_of(topic: TopicInfo) -> TopicLimits:
    """The rules of a topic, read off the configuration that counts for it."""
    config = topic.effective
    size = _number(config.get("max.message.bytes"))
    policy = config.get("cleanup.policy", "")
    is_ours = config.get("message.timestamp.type", "CreateTime") == "CreateTime"
    # Until Kafka 3.9 one setting bounds both directions, beside the two newer ones.
    both = _number(config.get("message.timestamp.difference.max.ms"))
    retention_ms = _number(config.get("retention.ms"))
    return TopicLimits(
        record_bytes_max=None if size is None else size - BATCH_HEAD_BYTES,
        needs_key="compact" in policy,
        before_ms_max=_least(_number(config.get("message.timestamp.before.max.ms")), both)
        if is_ours
        else None,
        after_ms_max=_least(_number(config.get("message.timestamp.after.max.ms")), both) if is_ours else None,
        retention_ms=retention_ms if is_ours and "delete" in policy else None,
    )


def _number(value: str | None) -> int | None:
    """A setting as a number, None if it is not set or means no limit."""
    if not value:
        return None
    number = int(value)
    return None if number < 0 or number >= _ENDLESS else number


def _least(*numbers: int | None) -> int | None:
    return min((number for number in numbers if number is not None), default=None)
