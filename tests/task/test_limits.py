import pytest

from streamkit.model.topic_shape import TopicInfo
from streamkit.task.limits import TopicLimits, limits_of

KAFKA_4 = {
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.after.max.ms": "3600000",
}
PLAIN = TopicLimits(1_048_460, False, None, 3_600_000, 604_800_000)


@pytest.mark.parametrize(
    ("config", "limits"),
    [
        ({}, PLAIN),
        ({"cleanup.policy": "compact"}, TopicLimits(1_048_460, True, None, 3_600_000, None)),
        ({"cleanup.policy": "compact,delete"}, TopicLimits(1_048_460, True, None, 3_600_000, 604_800_000)),
        ({"retention.ms": "-1"}, TopicLimits(1_048_460, False, None, 3_600_000, None)),
        ({"message.timestamp.type": "LogAppendTime"}, TopicLimits(1_048_460, False, None, None, None)),
        (
            {"message.timestamp.before.max.ms": "5", "max.message.bytes": "2000"},
            TopicLimits(1_872, False, 5, 3_600_000, 604_800_000),
        ),
    ],
)
def test_the_rules_of_a_topic_are_read_off_its_effective_configuration(config, limits):
    assert limits_of(TopicInfo("t", 1, 1, config, {**KAFKA_4, **config})) == limits


def test_before_kafka_3_6_one_setting_bounds_both_directions():
    older = {"message.timestamp.difference.max.ms": "9000", "cleanup.policy": "delete", "retention.ms": "-1"}
    assert limits_of(TopicInfo("t", 1, 1, {}, older)) == TopicLimits(None, False, 9000, 9000, None)
