"""What strangers write into the topics and files that are ours: one clear error, or it is not believed; never a loop."""

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from streamkit.codec.signals import encode_signal
from streamkit.errors import Misconfigured
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.model.signal import Barrier, EndOfInput, Idle, Signal, Watermark
from streamkit.runtime.last_commits import last_commits
from streamkit.runtime.retire import Retirement
from streamkit.runtime.slot import take_slot
from streamkit.state.keys import COMMIT_KEY
from streamkit.task.clock_state import CLOCK
from streamkit.testing import Harness
from streamkit.testing.memory import MemoryBroker, MemoryLog
from tests.progress.alarms import ORDERS, RINGS, Order, ringing
from tests.runtime.pages import VIEWS, View, counting

DAY_MS = 86_400_000


def write(harness: Harness, place: TopicPartition, key: bytes | None, value: bytes | None) -> None:
    """A record from somebody who may write where he should not."""
    batch = harness._writer.batch()
    batch.append(0, 0, key, value, [])
    harness._do(harness._writer.commit(Commit([OutBatch(place, batch, 1)], {}, Member("", "", -1))))


def shuffle_of(harness: Harness) -> TopicPartition:
    return TopicPartition(next(iter(harness._plan.shuffles())), 0)


def changelogs(harness: Harness) -> list[TopicPartition]:
    return [TopicPartition(stage.changelog, 0) for stage in harness._plan.stages]


@pytest.mark.parametrize("kind", [Watermark, Idle])
def test_a_signal_from_far_in_the_future_does_not_carry_event_time_away(
    kind: type[Watermark] | type[Idle],
) -> None:
    with Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50]), Order(20), key="a")
        harness.run()
        forged: Signal = kind(harness.now_ms + 2 * DAY_MS)
        write(harness, shuffle_of(harness), None, encode_signal(0, forged))
        harness.run()
        assert harness.read(RINGS) == ["a@10"]
        behind = [task for task in harness._running() if not task.clock.sources]
        assert [task.clock.counts["doubted_signals"] for task in behind] == [1]
        harness.send(ORDERS, Order(60), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@50"]


def test_an_end_that_cannot_come_is_not_believed() -> None:
    with Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50]), Order(20), key="a")
        harness.run()
        write(harness, shuffle_of(harness), None, encode_signal(0, EndOfInput()))
        harness.run()
        assert harness.read(RINGS) == ["a@10"]


@pytest.mark.parametrize(
    "value", [b"hello", None, encode_signal(5000, Watermark(3)), encode_signal(0, Barrier(7, 1))]
)
def test_a_foreign_record_in_a_shuffle_stops_the_worker_unless_it_is_to_be_skipped(
    value: bytes | None,
) -> None:
    with Harness(ringing(shuffles=1), partitions=1) as harness:
        write(harness, shuffle_of(harness), None, value)
        with pytest.raises(Misconfigured) as raised:
            harness.run()
        assert "STREAMKIT_SKIP_FOREIGN=true" in raised.value.hint
    with Harness(ringing(shuffles=1), partitions=1, skip_foreign=True) as harness:
        write(harness, shuffle_of(harness), None, value)
        harness.send(ORDERS, Order(0, set=[10]), Order(20), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@10"]
        assert sum(task.clock.counts["foreign_records"] for task in harness._running()) == 1


@pytest.mark.parametrize("is_timed", [True, False])
def test_a_barrier_stops_an_engine_that_draws_no_cuts(is_timed: bool) -> None:
    pipeline = ringing(shuffles=1) if is_timed else counting()
    with Harness(pipeline, partitions=1) as harness:
        write(harness, shuffle_of(harness), None, encode_signal(0, Barrier(7, 1)))
        with pytest.raises(Misconfigured, match="holds a barrier of cut 7") as raised:
            harness.run()
        assert "if a newer release did, run that one" in raised.value.hint


@pytest.mark.parametrize("value", [b"garbage", b"", None])
def test_a_commit_record_that_is_none_is_one_clear_error(value: bytes | None) -> None:
    with Harness(counting(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        harness.crash(0)
        write(harness, changelogs(harness)[1], COMMIT_KEY, value)
        with pytest.raises(Misconfigured, match="is no commit record") as raised:
            harness.restart(0)
        assert changelogs(harness)[1].topic in raised.value.where


def test_a_clock_that_cannot_be_is_one_clear_error() -> None:
    with Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.send(ORDERS, Order(0), key="a")
        harness.run()
        harness.crash(0)
        records = harness._do(last_commits(harness._plan, harness._log))
        (task,) = [each for each in records if each.stage == harness._plan.stages[1].name]
        wrong = msgspec.structs.replace(
            records[task], extra={CLOCK: b"\x93\x01"}, span=records[task].span + 1
        )
        write(harness, changelogs(harness)[1], COMMIT_KEY, wrong.encode())
        with pytest.raises(Misconfigured, match="does not say what event time it is"):
            harness.restart(0)


async def test_writers_of_others_are_never_fenced() -> None:
    log = MemoryLog(MemoryBroker())
    writer = log.writer(WriterOptions("billing.host-0", Guarantee.EXACTLY_ONCE))
    await writer.open()
    await Retirement(log, "pages", [], []).retire("billing.host-0")
    await writer.commit(Commit([], {}, Member("", "", -1)))


@pytest.mark.parametrize("damage", [b"\xff\xfe", b"a\0b", b"x" * 100_000, b"two\nlines"])
def test_a_damaged_file_of_a_former_worker_says_nothing(tmp_path: Path, damage: bytes) -> None:
    slot = take_slot(tmp_path)
    slot.remember_member("member-1")
    assert slot.former_member() == "member-1"
    for name in ("worker-0.member", "worker-0.writer"):
        (tmp_path / name).write_bytes(damage)
    assert (slot.former_member(), slot.former_writer()) == (None, None)
    slot.release()


def test_a_signal_of_a_task_that_does_not_exist_holds_event_time_only_until_the_cluster_is_asked() -> None:
    with capture_logs() as told, Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50, 70]), Order(20), key="a")
        harness.run()
        for channel in (7, 900):
            write(harness, shuffle_of(harness), None, encode_signal(channel, Watermark(30)))
        harness.run()
        harness.send(ORDERS, Order(60), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@10"]  # it may be a source that has grown
        harness.advance(10)
        assert harness.read(RINGS) == ["a@50"]
        (behind,) = [task for task in harness._running() if not task.clock.sources]
        assert behind.clock.counts["doubted_signals"] == 1
        # It goes on at once when such a signal comes again, and after a crash nothing is left of it.
        write(harness, shuffle_of(harness), None, encode_signal(7, Watermark(30)))
        harness.run()
        assert behind.clock.counts["doubted_signals"] == 2
        assert [each.held_back_by for each in harness.watermarks()] == ["orders[0]", "orders/0"]
        harness.crash(0)
        harness.restart(0)
        harness.send(ORDERS, Order(80), key="a")
        harness.run()
        assert harness.read(RINGS) == ["a@70"]
        assert [each["log_level"] for each in told if "do not exist" in each["event"]] == ["warning"]


def test_a_task_that_the_cluster_knows_of_is_waited_for_however_long_it_is_silent() -> None:
    with Harness(ringing(shuffles=1), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=[10, 50]), Order(20), key="a")
        harness.run()
        # A worker that knows more partitions than this one has prepared the changelog for them.
        harness._do(harness._log.admin().add_partitions(changelogs(harness)[0].topic, 2))
        write(harness, shuffle_of(harness), None, encode_signal(1, Watermark(30)))
        harness.send(ORDERS, Order(60), key="a")
        harness.run()
        harness.advance(60)
        assert harness.read(RINGS) == ["a@10"]
        write(harness, shuffle_of(harness), None, encode_signal(1, Watermark(55)))
        harness.run()
        assert harness.read(RINGS) == ["a@50"]
