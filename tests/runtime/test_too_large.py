"""What is too large, and no record to blame for it, ends with a person; where a record is, it is set aside."""

import pytest

import streamkit as sk
from streamkit.errors import Misconfigured
from streamkit.testing import Harness
from tests.progress.alarms import ORDERS, RINGS, Order, ringing
from tests.runtime.pages import COUNTS, VIEWS, Count, View, counting, page_of
from tests.runtime.test_refusals import configure

LONG = "k" * 30_000


def worker_error(harness: Harness) -> Misconfigured:
    """What the one worker has ended with."""
    work = harness.workers[0].work
    assert work is not None
    assert work.done()
    with pytest.raises(Misconfigured) as ended:
        work.result()
    return ended.value


def test_a_shuffle_that_takes_no_signals_ends_with_a_person() -> None:
    with Harness(ringing(shuffles=1), partitions=1, local_shuffle=False) as harness:
        harness.send(ORDERS, Order(0), key="a")
        harness.run()
        harness.crash()
        configure(harness, "alarms.by_alarm_0.shuffle.1", max_message_bytes="280")
        harness.restart()
        harness.advance(120, event_time={ORDERS: 100_000})
        error = worker_error(harness)
    assert error.problem == 'the shuffle topic "alarms.by_alarm_0.shuffle.1" takes no signals of event time'
    assert "bytes is larger than topic" in error.detail
    assert "raise max.message.bytes" in error.hint


def test_a_changelog_that_takes_no_commits_ends_with_a_person() -> None:
    with Harness(counting(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        configure(harness, "pages.page_of.changelog.1", max_message_bytes="150")
        harness.send(VIEWS, View("home"))
        harness.advance(120)
        error = worker_error(harness)
    assert error.problem == "the plan of task page_of/0 cannot be written, and no record is to blame"
    assert 'larger than topic "pages.page_of.changelog.1"' in error.detail
    assert "raise max.message.bytes" in error.hint


def test_a_record_whose_timer_is_too_large_for_the_changelog_is_a_dead_letter() -> None:
    with Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.crash()
        configure(harness, "alarms.by_alarm_0.changelog.1", max_message_bytes="20000")
        harness.restart()
        for alarm in ("a", LONG, "b"):
            harness.send(ORDERS, Order(0, alarm, set=[10]), key="x")
        harness.send(ORDERS, Order(100), key="x")
        harness.run()
        assert sorted(harness.read(RINGS)) == ["a@10", "b@10"]
        (letter,) = harness.dead_letters()
    assert b"a key with its timer or its state has" in (letter.headers["streamkit.error"] or b"")


class Forgetting(sk.Operator[str, View, Count]):
    """Deletes what may not be there."""

    views = sk.value(int, 0)

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.views.clear()
        ctx.emit(Count(value.page, 0))


def test_a_record_that_deletes_under_a_key_too_large_for_the_changelog_is_a_dead_letter() -> None:
    pipeline = sk.pipeline("forgetting")
    pipeline.read(VIEWS).key_by(page_of).process(Forgetting(), name="forgetting").write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        harness.crash()
        configure(harness, "forgetting.page_of.changelog.1", max_message_bytes="20000")
        harness.restart()
        for page in ("a", LONG, "b"):
            harness.send(VIEWS, View(page))
        harness.run()
        assert sorted(count.page for count in harness.read(COUNTS)) == ["a", "b"]
        assert len(harness.dead_letters()) == 1
