import pytest
from structlog.testing import capture_logs

from streamkit.kafka import outage
from streamkit.kafka.outage import Outage


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(outage.time, "monotonic", lambda: now[0])
    return now


def test_an_outage_is_told_once_and_then_more_seldom_each_time(clock):
    trouble = Outage("kafka:9092")
    with capture_logs() as logs:
        for _ in range(4_800):  # ten minutes, eight tries a second
            trouble.failed("no connection")
            clock[0] += 0.125
        trouble.over()
        trouble.over()
    waits = [each for each in logs if each["log_level"] == "warning"]
    assert [each["seconds"] for each in waits] == [0, 5, 15, 35, 75, 155, 315]
    assert waits[0]["brokers"] == "kafka:9092"
    assert [each["event"] for each in logs if each not in waits] == ["a broker answers again"]


def test_the_next_outage_is_told_from_its_beginning(clock):
    trouble = Outage("kafka:9092")
    with capture_logs() as logs:
        trouble.failed("a")
        trouble.over()
        clock[0] += 1.0
        trouble.failed("b")
    assert [(each.get("error"), each["seconds"]) for each in logs] == [("a", 0), (None, 0), ("b", 0)]


def test_who_has_had_no_trouble_says_nothing(clock):
    with capture_logs() as logs:
        Outage("kafka:9092").over()
    assert logs == []
