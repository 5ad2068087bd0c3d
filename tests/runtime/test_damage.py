"""State that cannot be read: a damaged disk heals by the changelog, a damaged changelog ends with a person."""

from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
from structlog.testing import capture_logs

from streamkit.errors import StateCorrupt, StateLost
from streamkit.kafka.ports import WriterOptions
from streamkit.model.commit import Commit, Guarantee, Member, OutBatch
from streamkit.model.ids import TopicPartition
from streamkit.runtime import damage, restore
from streamkit.runtime.damage import DAMAGES_MAX, StateDamaged
from streamkit.state.keys import RESERVED_PREFIX
from streamkit.state.rocks import RocksStores
from streamkit.state.rocks_store import RocksStore
from streamkit.task.task import Task
from streamkit.testing import Harness, harness_worker
from streamkit.testing.memory import MemoryLog
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting

BAD = b"\x00bad"
MIB = 1024 * 1024


def stateful(harness: Harness) -> Task:
    """The task that counts."""
    loop = harness.workers[0].loop
    assert loop is not None
    return next(task for task in loop.roster.tasks.values() if task.stage.stores)


def row_of(task: Task) -> bytes:
    """The state key of the only page that was counted."""
    task.state.write_pending()
    return next(key for key, _ in task.state.store.scan(b"") if not key.startswith(RESERVED_PREFIX))


def damage_disk(harness: Harness) -> None:
    task = stateful(harness)
    task.state.store.apply({row_of(task): BAD}, task.state.changelog_offset)
    task.state.drop()


def damage_changelog(harness: Harness) -> None:
    """Somebody writes a row over that of the page, behind the last commit record but one."""
    task = stateful(harness)
    key = row_of(task)
    log = MemoryLog(harness._broker)
    writer = log.writer(WriterOptions("vandal", Guarantee.AT_LEAST_ONCE))
    harness._do(writer.open())
    batch = writer.batch()
    batch.append(0, harness.now_ms, key, BAD, [])
    out = OutBatch(TopicPartition(task.changelog.topic, task.changelog.partition), batch, 1)
    harness._do(writer.commit(Commit([out], {}, Member("", "", -1))))
    harness.send(VIEWS, View("cart"))  # a commit record behind it
    harness.run()
    damage_disk(harness)


def said_damaged(logs: list[Any]) -> list[Any]:
    return [each for each in logs if "cannot be read" in each["event"]]


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_value_that_the_disk_has_damaged_is_restored_from_the_changelog(guarantee: str) -> None:
    with capture_logs() as logs, Harness(counting(), partitions=1, guarantee=guarantee) as harness:
        harness.send(VIEWS, View("home"), View("home"))
        harness.run()
        damage_disk(harness)
        harness.send(VIEWS, View("home"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": 3}
        assert harness.dead_letters() == []
    (said,) = said_damaged(logs)
    assert "views_per_page" in said["error"]
    assert "home" in said["error"]
    assert said["step"] == "views_per_page"
    assert said["times"] == 1


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_a_value_that_the_changelog_holds_damaged_ends_with_a_person(guarantee: str) -> None:
    with capture_logs() as logs, Harness(counting(), partitions=1, guarantee=guarantee) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        task = stateful(harness).id
        changelog = stateful(harness).changelog
        damage_changelog(harness)
        harness.send(VIEWS, View("home"))
        with pytest.raises(StateDamaged) as caught:
            harness.run()
        assert harness.dead_letters() == []
    error = caught.value
    assert error.code == "SK570"
    assert "views_per_page" in error.problem
    assert "home" in error.where
    assert str(task) in error.where
    assert str(changelog) in error.detail
    assert BAD.hex() in error.detail
    assert "--drop-state" in error.hint
    assert [each["times"] for each in said_damaged(logs)] == list(range(1, DAMAGES_MAX + 1))


def test_other_records_that_are_committed_meanwhile_do_not_put_the_end_off() -> None:
    """Records of other keys are committed between two tries; the damaged one is found again all the same."""
    with Harness(counting(), partitions=1, commit_interval_s=0.0, slice_records=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        damage_changelog(harness)
        for number in range(20):
            harness.send(VIEWS, View(f"page-{number}"))
        harness.send(VIEWS, View("home"))
        with pytest.raises(StateDamaged):
            harness.run()
        harness.dead_letters()


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
@pytest.mark.parametrize("batches_left", [0, 3])
def test_local_state_that_the_changelog_no_longer_has_is_kept_though_it_is_damaged(
    guarantee: str, batches_left: int
) -> None:
    """Most of it can be read, and there is no other copy; going on would count from an earlier number."""
    with Harness(counting(), partitions=1, guarantee=guarantee, local_shuffle=False) as harness:
        for _ in range(5):
            harness.send(VIEWS, View("home"), View("cart"))
            harness.run()
        damage_disk(harness)
        task = stateful(harness)
        (changelog,) = harness._broker.topics.topic(task.changelog.topic).partitions
        del changelog.batches[batches_left:]
        changelog.end_offset = changelog.batches[-1].next_offset if changelog.batches else 0
        harness.send(VIEWS, View("home"))
        with pytest.raises(StateLost):
            harness.run()
        harness._kill(harness.workers[0])
        store = harness.workers[0].stores.open(restore.local_name(task.id))
        assert store.changelog_offset > changelog.end_offset
        store.close()
        harness.dead_letters()


def test_damages_that_lie_far_apart_are_not_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(damage, "DAMAGES_S", 60.0)
    with Harness(counting(), partitions=1) as harness:
        for _ in range(DAMAGES_MAX + 2):
            harness.send(VIEWS, View("home"))
            harness.run()
            damage_disk(harness)
            harness.advance(61.0)
        harness.send(VIEWS, View("home"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": DAMAGES_MAX + 3}


def test_a_damaged_file_of_a_real_store_is_restored_while_the_worker_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rocks(monkeypatch, tmp_path)
    with capture_logs() as logs, Harness(counting(), partitions=1, state_flush_interval_s=0.1) as harness:
        pages = [View(f"page-{number}") for number in range(300)]
        harness.send(VIEWS, *pages)
        harness.run()
        harness.advance(5.0)
        spoil_files(tmp_path)
        harness.crash()
        harness.restart()  # nothing is cached any more
        harness.send(VIEWS, *pages)
        harness.run()
        assert set(check_running_counts(harness.read(COUNTS)).values()) == {2}
        assert harness.dead_letters() == []
    assert len(said_damaged(logs)) <= 1
    assert list(tmp_path.glob("*.damaged-*"))


def test_a_disk_that_damages_all_it_is_given_ends_with_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_rocks(monkeypatch, tmp_path)
    read = RocksStore.get

    def get(self: RocksStore, key: bytes) -> bytes | None:
        if key.startswith(RESERVED_PREFIX):
            return read(self, key)
        raise self._explain(Exception("Corruption: block checksum mismatch"))

    with Harness(counting(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        monkeypatch.setattr(RocksStore, "get", of_ours(get))
        stateful(harness).state.drop()
        stateful(harness).state.write_pending()
        harness.send(VIEWS, View("home"))
        with pytest.raises(StateDamaged) as caught:
            harness.run()
    assert "disk" in caught.value.hint
    assert str(tmp_path) in caught.value.where


def of_ours(function: Any) -> Any:
    """Who raised an error is told by the module of its code, and a store's is one of ours."""
    names = {**function.__globals__, "__name__": "streamkit.state.rocks_store"}
    return FunctionType(function.__code__, names, closure=function.__closure__)


def with_rocks(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.setattr(
        harness_worker, "MemoryStores", lambda *_, **__: CrashableStores(folder, 8 * MIB, 8 * MIB)
    )


class CrashableStores(RocksStores):
    def crash(self) -> None:
        for store in self._stores:
            store.close()


def spoil_files(folder: Path) -> None:
    for file in folder.rglob("*.sst"):
        content = bytearray(file.read_bytes())
        for at in range(0, len(content) // 2, 50):
            content[at] ^= 0xFF
        file.write_bytes(bytes(content))


def test_the_error_of_a_read_names_the_key() -> None:
    with Harness(counting(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        damage_disk(harness)
        task = stateful(harness)
        cells = task.state.cells(task.stage.stores[0])
        with pytest.raises(StateCorrupt, match="home"):
            cells.load(b"home")
        harness.run()


def test_local_state_of_another_changelog_that_cannot_be_discarded_ends_with_a_person(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before, it was tried again for ever, without a pause and without a word."""
    with Harness(counting(), partitions=1) as harness:
        harness.send(VIEWS, View("home"))
        harness.run()
        harness.crash()
        births = iter(range(10**9))
        monkeypatch.setattr(restore, "birth_of", lambda _store: f"another {next(births)}")
        begun = harness.now_ms
        with pytest.raises(StateDamaged, match="belongs to a changelog that was deleted"):
            harness.restart()
        assert harness.now_ms - begun > 1000  # it has waited between the tries
