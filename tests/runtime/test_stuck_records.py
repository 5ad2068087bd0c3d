"""Records that hold a worker for too long are counted over restarts, and condemned when patience is at its end."""

from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.graph.policy import ErrorPolicy
from streamkit.model.counts import DEAD_LETTERS
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.progress.task_clock import ClockState
from streamkit.runtime.slot import Slot, take_slot
from streamkit.runtime.stuck_records import KEPT_MS, StuckRecords
from streamkit.runtime.whereabouts import Whereabouts
from streamkit.state.timers import StoredTimer
from streamkit.task.failure_book import Condemned
from streamkit.task.task import Task
from streamkit.testing import Harness

AT = TopicPartition("words", 0)
NOW_MS = 1_700_000_000_000
WORDS = sk.topic("words", str)
LENGTHS = sk.topic("lengths", int)


def record(offset: int) -> Whereabouts:
    return Whereabouts("step", AT, offset, task=TaskId("stage", 0))


def result(key: bytes) -> Whereabouts:
    return Whereabouts("step", task=TaskId("stage", 0), held_by="counted", key=key)


def losses(slot: Slot, policy: ErrorPolicy | None = None, now_ms: int = NOW_MS) -> StuckRecords:
    return StuckRecords(slot, policy or sk.dead_letter(), lambda: now_ms)


def condemned(known: StuckRecords) -> dict[int, Condemned]:
    plan = _mapping().plan()
    stage = plan.stages[0]
    task = Task(TaskId("stage", 0), stage, {AT: stage.inputs[0]})
    known.condemn(task)
    return task.book.records.get(AT, {})


def _mapping(policy: ErrorPolicy | None = None, ran: list[str] | None = None) -> sk.Pipeline:
    def measure(word: str) -> int:
        if ran is not None:
            ran.append(word)
        return len(word)

    pipeline = sk.pipeline("lost", on_error=policy or sk.dead_letter())
    pipeline.read(WORDS).map(measure).write(LENGTHS)
    return pipeline


def never(_at: TopicPartition, _offset: int) -> bool:
    return False


def test_the_first_loss_may_be_an_accident_the_second_condemns(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    assert losses(slot).note(record(7), 300.0, never) == 1
    assert condemned(losses(slot)) == {}
    assert losses(slot).note(record(7), 300.0, never) == 2  # another process by now
    assert losses(slot).note(record(8), 300.0, never) == 1
    found = condemned(losses(slot))
    assert list(found) == [7]
    assert found[7].step == "step"
    assert "processing_max_s (300 s), 2 times" in found[7].error


def test_the_patience_is_that_of_the_policy(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    patient = sk.dead_letter(retries=3)
    for _ in range(3):
        losses(slot, patient).note(record(7), 1.0, never)
    assert condemned(losses(slot, patient)) == {}
    losses(slot, patient).note(record(7), 1.0, never)
    assert list(condemned(losses(slot, patient))) == [7]


def test_losses_of_the_other_workers_of_a_host_count_too(tmp_path: Path) -> None:
    one, two = take_slot(tmp_path), take_slot(tmp_path)
    losses(one).note(record(7), 1.0, never)
    assert losses(two).note(record(7), 1.0, never) == 2
    assert list(condemned(losses(one))) == [7]
    assert list(condemned(losses(take_slot(tmp_path)))) == [7]


def test_what_is_committed_or_a_day_old_is_forgotten(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    for offset in (7, 7, 9, 9):
        losses(slot).note(record(offset), 1.0, never)
    assert list(condemned(losses(slot))) == [7, 9]
    assert condemned(losses(slot, now_ms=NOW_MS + KEPT_MS + 1)) == {}
    losses(slot).note(record(11), 1.0, lambda _at, offset: offset < 9)
    assert list(condemned(losses(slot))) == [9]


@pytest.mark.parametrize("damage", [b"", b"{", b'[{"topic":"words"}]', b'[{"more":1}]', b"\xff\x00"])
def test_a_damaged_file_is_ignored_with_a_warning(tmp_path: Path, damage: bytes) -> None:
    slot = take_slot(tmp_path)
    for _ in range(2):
        losses(slot).note(record(7), 1.0, never)
    (file,) = tmp_path.glob("*.losses")
    file.write_bytes(damage)
    with capture_logs() as logs:
        assert condemned(losses(slot)) == {}
    assert [entry["event"] for entry in logs] == (
        ["what was written down of earlier losses cannot be read"] if damage else []
    )
    assert losses(slot).note(record(7), 1.0, never) == 1


def test_a_file_that_cannot_be_written_costs_the_count_and_no_more(tmp_path: Path) -> None:
    slot = take_slot(tmp_path / "slots")
    (tmp_path / "slots").rename(tmp_path / "gone")
    with capture_logs() as logs:
        losses(slot).note(record(7), 1.0, never)
    assert logs[0]["event"] == "a loss could not be written down"


def test_a_timer_is_condemned_by_its_task_and_name(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    timer = StoredTimer(b"k\xff", 12, b"")
    where = Whereabouts("step", task=TaskId("stage", 0), store="store", timer=timer)
    for _ in range(2):
        losses(slot).note(where, 1.0, never)
    stage = _mapping().plan().stages[0]
    task, other = Task(TaskId("stage", 0), stage, {}), Task(TaskId("stage", 1), stage, {})
    for each in (task, other):
        losses(slot).condemn(each)
    assert list(task.book.timers) == [("store", timer)]
    assert other.book.timers == {}
    assert not losses(slot).was_handed


def test_a_held_back_result_is_condemned_by_its_task_step_and_key(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    losses(slot).note_chunk(result(b"k\xff"), 1.0, never)
    for key in (b"k\xff", b"k\xff", b"other"):
        losses(slot).note(result(key), 1.0, never)
    stage = _mapping().plan().stages[0]
    task, other = Task(TaskId("stage", 0), stage, {}), Task(TaskId("stage", 1), stage, {})
    for each in (task, other):
        losses(slot).condemn(each)
    assert {step: list(keys) for step, keys in task.book.results.items()} == {"counted": [b"k\xff"]}
    assert (task.book.timers, other.book.results) == ({}, {})
    assert slowed(losses(slot)).singly.results  # the other one is measured alone
    task.landed({}, ClockState(), 1)
    assert task.book.results


def test_a_file_with_results_has_no_field_that_older_versions_do_not_know(tmp_path: Path) -> None:
    """They refuse a file with one as a whole; what they do not know by its fields they pass over."""
    slot = take_slot(tmp_path)
    losses(slot).note(result(b"k"), 1.0, never)
    (file,) = tmp_path.glob("*.losses")
    (written,) = msgspec.json.decode(file.read_bytes())
    assert set(written) == {
        "topic", "partition", "offset", "stage", "step", "count", "at_ms", "limit_s", "store", "key", "time", "namespace",
    }  # fmt: skip
    assert (written["topic"], written["offset"], written["store"]) == ("", -1, "")


def test_a_record_that_was_handed_over_is_known_as_one(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    losses(slot).note(record(-1), 1.0, never)
    assert losses(slot).was_handed
    assert condemned(losses(slot)) == {}


def slowed(known: StuckRecords) -> Task:
    stage = _mapping().plan().stages[0]
    task = Task(TaskId("stage", 0), stage, {AT: stage.inputs[0]})
    known.slow_down(task)
    task.singly._now_ms = lambda: NOW_MS
    return task


def test_a_chunk_without_a_culprit_never_condemns_and_is_run_singly(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    for _ in range(5):
        losses(slot).note_chunk(record(7), 1.0, never)
    assert condemned(losses(slot)) == {}
    task = slowed(losses(slot))
    assert task.pace.is_single
    task.singly.passed({AT: 7})
    assert task.pace.is_single
    task.singly.passed({AT: 8})
    assert not task.pace.is_single
    assert not slowed(losses(slot, now_ms=NOW_MS + KEPT_MS + 1)).pace.is_single


def test_a_chunk_takes_nothing_from_the_count_of_its_record(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    assert losses(slot).note(record(7), 1.0, never) == 1
    assert slowed(losses(slot)).pace.is_single  # the next time it is measured alone
    losses(slot).note_chunk(record(7), 1.0, never)
    assert losses(slot).note(record(7), 1.0, never) == 2
    assert list(condemned(losses(slot))) == [7]
    assert not slowed(losses(slot)).pace.is_single


def test_timers_and_results_are_slowed_down_by_their_task(tmp_path: Path) -> None:
    slot = take_slot(tmp_path)
    stage = _mapping().plan().stages[0]
    timer = StoredTimer(b"k", 12, b"")
    in_front = Whereabouts("step", AT, 7, TaskId("stage", 0), "store", timer)
    losses(slot).note_chunk(in_front, 1.0, never)
    task = slowed(losses(slot))
    assert (task.singly.timers, task.singly.results) == (True, False)
    assert task.pace.is_single  # each record of the chunk may have made some of them due
    losses(slot).note_chunk(result(b"k"), 1.0, never)
    assert slowed(losses(slot)).singly.results
    other = Task(TaskId("stage", 1), stage, {})
    losses(slot).slow_down(other)
    assert (other.singly.timers, other.singly.results, other.pace.is_single) == (False, False, False)
    assert not losses(slot).was_handed
    losses(slot).note_chunk(record(-1), 1.0, never)  # read from their topic, they have places
    assert losses(slot).was_handed


def _lose(harness: Harness, offset: int) -> None:
    """As if the worker had died of this record twice."""
    for _ in range(2):
        now_ms = harness._now_ms
        StuckRecords(harness.workers[0], sk.dead_letter(), now_ms).note(record(offset), 300.0, never)
    harness.crash(0)
    harness.restart(0)


def test_a_condemned_record_is_a_dead_letter_and_is_not_run() -> None:
    ran: list[str] = []
    with Harness(_mapping(ran=ran), partitions=1) as harness:
        _lose(harness, 1)
        harness.send(WORDS, "a", "bb", "ccc")
        harness.run()
        assert harness.read(LENGTHS) == [1, 3]
        (letter,) = harness.dead_letters()
    assert ran == ["a", "ccc"]
    assert letter.value == b"bb"
    assert letter.headers["streamkit.step"] == b"step"
    assert letter.headers["streamkit.error"] is not None
    assert b"processing_max_s" in letter.headers["streamkit.error"]


def test_skip_leaves_it_out() -> None:
    ran: list[str] = []
    with Harness(_mapping(sk.skip(), ran), partitions=1) as harness:
        _lose(harness, 1)
        harness.send(WORDS, "a", "bb", "ccc")
        harness.run()
        assert harness.read(LENGTHS) == [1, 3]
        assert harness.dead_letters() == []
    assert ran == ["a", "ccc"]


def test_fail_stops_the_task_at_it_without_running_it() -> None:
    ran: list[str] = []
    with Harness(_mapping(sk.fail(), ran), partitions=1) as harness:
        _lose(harness, 1)
        harness.send(WORDS, "a", "bb", "ccc")
        harness.advance(60)
        assert harness.read(LENGTHS) == [1] or harness.read(LENGTHS) == []
        loop = harness.workers[0].loop
        assert loop is not None
        (task,) = loop.roster.tasks.values()
        assert not task.clock.counts[DEAD_LETTERS]
        assert task.book.in_a_row > 1
    assert set(ran) == {"a"}


def test_records_are_run_singly_for_a_day_at_most(tmp_path: Path) -> None:
    """A topic that was created anew may never get to the place that was written down."""
    slot = take_slot(tmp_path)
    losses(slot).note_chunk(record(7), 1.0, never)
    task = slowed(losses(slot))
    task.singly._now_ms = lambda: NOW_MS + KEPT_MS - 1
    task.singly.passed({AT: 3})
    assert task.pace.is_single
    task.singly._now_ms = lambda: NOW_MS + KEPT_MS
    task.singly.passed({AT: 3})
    assert not task.pace.is_single
