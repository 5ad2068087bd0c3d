"""Internal topics that vanish while nobody runs: refused with a way out, and nothing local is discarded."""

from collections.abc import Callable

import pytest

from streamkit.config import Settings
from streamkit.errors import LogGap, Misconfigured, StateLost
from streamkit.model.commit import Guarantee
from streamkit.model.ids import Position, TopicPartition
from streamkit.model.topic_shape import TopicSpec
from streamkit.operate.offsets_apply import drop_state
from streamkit.operate.offsets_plan import plan_anew
from streamkit.runtime import prepare as prepare_module
from streamkit.runtime.internal_topics import CHANGELOG_CONFIG, SHUFFLE_CONFIG
from streamkit.runtime.lost_state import find_losses, has_committed
from streamkit.runtime.prepare import inspect
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, View, check_running_counts, counting

CHANGELOG = "pages.page_of.changelog.1"
FIRST_CHANGELOG = "pages.views.changelog.1"
SHUFFLE = "pages.page_of.shuffle.1"


def send(harness: Harness, count: int) -> None:
    for number in range(count):
        harness.send(VIEWS, View(f"page-{number % 5}"), key=str(number))


def worked() -> Harness:
    """A pipeline that has counted 40 views, all by way of its shuffle's topic, and was killed."""
    harness = Harness(counting(), partitions=2, local_shuffle=False, state_flush_interval_s=0.0)
    send(harness, 40)
    harness.run()
    harness.crash()
    return harness


def disk(harness: Harness) -> list[int]:
    """How far the local stores of the counts have come."""
    found = []
    for partition in range(2):
        store = harness.workers[0].stores.open(f"page_of-{partition}")
        found.append(store.changelog_offset)
        store.close()
    return found


def delete(harness: Harness, topic: str) -> None:
    harness._do(harness._log.admin().delete([topic]))


def create_anew(harness: Harness, topic: str) -> None:
    delete(harness, topic)
    config = SHUFFLE_CONFIG if "shuffle" in topic else CHANGELOG_CONFIG
    harness._do(harness._log.admin().create([TopicSpec(topic, 2, config=config)]))


def begin_anew(harness: Harness) -> None:
    """As `streamkit offsets reset --to earliest --drop-state --execute`."""
    admin, plan = harness._log.admin(), harness._plan
    harness._do(admin.reset_positions(plan.name, {}))  # nobody runs
    planned = harness._do(plan_anew(plan, admin, "earliest"))
    harness._do(drop_state(plan, admin, None))
    positions = {TopicPartition(each.topic, each.partition): each.after for each in planned.moves}
    harness._do(admin.reset_positions(plan.name, positions))


@pytest.mark.parametrize("lose", [delete, create_anew])
@pytest.mark.parametrize("changelog", [CHANGELOG, FIRST_CHANGELOG])
def test_a_changelog_that_is_gone_is_refused_and_begun_anew(
    lose: Callable[[Harness, str], None], changelog: str
) -> None:
    with worked() as harness:
        harness.read(COUNTS)
        before = disk(harness)
        assert all(before)
        lose(harness, changelog)
        harness.advance(20)  # nobody keeps the dead one in the group any more
        for _ in range(2):
            with pytest.raises(StateLost) as refused:
                harness.restart()
            assert f'changelog "{changelog}"' in refused.value.problem
            assert "offsets reset" in refused.value.hint
            assert disk(harness) == before
        told = [
            each
            for each in harness._do(inspect(harness._plan, harness._log.admin())).findings
            if not each.good
        ]
        assert [(each.what, each.detail, each.hint) for each in told] == [
            (refused.value.problem, refused.value.detail, refused.value.hint)
        ]
        begin_anew(harness)
        harness.restart()
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 40


@pytest.mark.parametrize("is_disk_new", [False, True])
def test_a_task_that_finds_its_changelog_empty_stops_before_it_discards_its_disk(
    monkeypatch: pytest.MonkeyPatch, is_disk_new: bool
) -> None:
    """Also if it vanished after the worker had looked at all of them."""

    async def sees_nothing(*_: object) -> list[Misconfigured]:
        return []

    with worked() as harness:
        before = disk(harness)
        monkeypatch.setattr(prepare_module, "find_losses", sees_nothing)
        create_anew(harness, CHANGELOG)
        if is_disk_new:
            harness.workers[0].stores.discard("page_of-0")
            harness.workers[0].stores.discard("page_of-1")
        with pytest.raises(StateLost):
            harness.restart()
        harness._kill(harness.workers[0])
        if not is_disk_new:
            assert disk(harness) == before


def test_a_changelog_that_lost_its_end_is_refused_while_the_disk_has_it() -> None:
    with worked() as harness:
        before = disk(harness)
        for partition in harness._broker.topics.topic(CHANGELOG).partitions:
            del partition.batches[-2:]  # the last commit and its marker
            partition.end_offset = partition.batches[-1].next_offset if partition.batches else 0
        with pytest.raises(StateLost):
            harness.restart()
        harness._kill(harness.workers[0])
        assert disk(harness) == before


def test_a_shuffle_that_was_created_anew_is_refused_and_begun_anew() -> None:
    with worked() as harness:
        harness.read(COUNTS)
        create_anew(harness, SHUFFLE)
        harness.advance(20)
        with pytest.raises(LogGap) as refused:
            harness.restart()
        assert f"{SHUFFLE}[" in refused.value.problem
        assert "--drop-state" in refused.value.hint
        harness._kill(harness.workers[0])
        harness.advance(20)
        begin_anew(harness)
        harness.restart()
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 40


def configured(harness: Harness, topic: str) -> dict[str, str]:
    return dict(harness._do(harness._log.admin().describe([topic]))[topic].config)


@pytest.mark.parametrize(
    ("topic", "entry", "value"),
    [
        (CHANGELOG, "cleanup.policy", "compact,delete"),
        (CHANGELOG, "cleanup.policy", "delete"),
        (CHANGELOG, "delete.retention.ms", "1000"),
        (CHANGELOG, "message.timestamp.type", "CreateTime"),
        (SHUFFLE, "message.timestamp.type", "CreateTime"),
        (SHUFFLE, "cleanup.policy", "compact"),
    ],
)
def test_what_was_altered_is_set_back_where_nothing_was_lost(topic: str, entry: str, value: str) -> None:
    with worked() as harness:
        admin = harness._log.admin()
        before = configured(harness, topic)
        harness._do(admin.configure(topic, {entry: value}))
        told = harness._do(inspect(harness._plan, admin)).findings
        assert [each.what for each in told if "set back" in each.detail] == [f'internal topic "{topic}"']
        harness.restart()
        assert configured(harness, topic) == before
        send(harness, 5)
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 45


def test_what_an_operator_may_choose_is_left_alone() -> None:
    with worked() as harness:
        chosen = {"min.cleanable.dirty.ratio": "0.9", "delete.retention.ms": "864000000"}
        harness._do(harness._log.admin().configure(CHANGELOG, chosen))
        harness.restart()
        assert chosen.items() <= configured(harness, CHANGELOG).items()


def test_a_changelog_whose_beginning_was_deleted_is_refused() -> None:
    with worked() as harness:
        harness._do(harness._log.admin().configure(CHANGELOG, {"cleanup.policy": "delete"}))
        for partition in harness._broker.topics.topic(CHANGELOG).partitions:
            partition.start_offset = 1
        with pytest.raises(StateLost, match="no longer holds all"):
            harness.restart()
        assert configured(harness, CHANGELOG)["cleanup.policy"] == "delete"  # nothing was changed


def test_a_shuffle_that_was_compacted_before_it_was_read_is_refused() -> None:
    with worked() as harness:
        harness._do(harness._log.admin().configure(SHUFFLE, {"cleanup.policy": "compact"}))
        place = TopicPartition(SHUFFLE, 0)
        group = harness._broker.groups.group("pages")
        group.positions[place] = Position(group.positions[place] - 1, "1")
        with pytest.raises(LogGap, match="compacted"):
            harness.restart()


@pytest.mark.parametrize(
    ("guarantee", "note", "expected"),
    [
        (Guarantee.EXACTLY_ONCE, "1", True),
        (Guarantee.AT_LEAST_ONCE, "1", True),
        (Guarantee.AT_MOST_ONCE, "1", False),
        (Guarantee.AT_MOST_ONCE, "2", True),
        (Guarantee.EXACTLY_ONCE, "", False),
        (Guarantee.EXACTLY_ONCE, "by hand", False),
    ],
)
def test_a_position_tells_by_its_note_whether_a_changelog_was_written(
    guarantee: Guarantee, note: str, *, expected: bool
) -> None:
    assert has_committed([Position(7, note)], guarantee) is expected
    assert not has_committed([7], guarantee)


def test_a_first_commit_between_two_looks_is_no_loss() -> None:
    """Positions are read before the changelogs' ends: what they speak of is there by then."""
    with Harness(counting(), partitions=2) as harness:
        send(harness, 3)
        admin, plan = harness._log.admin(), harness._do(inspect(harness._plan, harness._log.admin())).plan
        asked: list[str] = []
        for name in ("positions", "end_offsets"):
            ask = getattr(admin, name)

            async def listening(
                *given: object, name: str = name, ask: Callable = ask, **more: object
            ) -> object:
                asked.append(name)
                return await ask(*given, **more)

            setattr(admin, name, listening)
        existing = harness._do(admin.partitions([*plan.changelogs()]))
        assert harness._do(find_losses(plan, admin, existing, Guarantee(Settings().guarantee))) == []
        assert asked == ["positions", "end_offsets"]
