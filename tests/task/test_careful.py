"""Records that fail, one after the other: each is undone alone, and costs about what a record costs."""

from typing import Any

import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.task import careful
from streamkit.task.letters import Letters
from streamkit.testing import Harness
from tests.progress.alarms import ORDERS, RINGS, Alarms, Order, ringing
from tests.runtime.pages import COUNTS, VIEWS, Count, View, check_running_counts, page_of

# What each record costs at most: calls of its operator (by memory, by the topic, carefully), and letters about it.
CALLS_MAX = 3


class Refusing(sk.Operator[str, View, Count]):
    """Counts views by key and by map; refuses some users after everything was touched."""

    views = sk.value(int, 0)
    users = sk.value(list[str])
    by_user = sk.map_of(str, int)

    def __init__(self, bad: str = "bad") -> None:
        self.bad = bad
        self.calls = [0]  # one list for the copies of all tasks

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.calls[0] += 1
        self.views.set(self.views.get() + 1)
        users = self.users.get() or []
        users.append(value.user)
        self.users.set(users)
        self.by_user.put(value.user, self.by_user.get(value.user, 0) + 1)
        ctx.emit(Count(value.page, self.views.get()))
        if value.user == self.bad:
            raise ValueError(f"no {value.user}")
        assert self.bad not in users
        assert self.bad not in self.by_user
        assert sum(count for _, count in self.by_user.items()) == len(users) == self.views.get()


def refusing(operator: Any, **options: Any) -> sk.Pipeline:
    pipeline = sk.pipeline("refusing", **options)
    pipeline.read(VIEWS).key_by(page_of).process(operator, name="refusing").write(COUNTS)
    return pipeline


@pytest.mark.parametrize("share", [2, 10])
def test_records_that_fail_leave_no_trace_and_make_the_others_run_a_few_times_at_most(share):
    operator = Refusing()
    with Harness(refusing(operator), partitions=2) as harness:
        for number in range(400):
            user = "bad" if number % share == 0 else "good"
            harness.send(VIEWS, View(f"page-{number % 5}", user), key=str(number))
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 400 - 400 // share
        assert len(harness.dead_letters()) == 400 // share
        # Once by memory, once by the topic, then carefully; what was committed in between is not run again.
        assert operator.calls[0] <= 4 * 400


@pytest.mark.parametrize("size", [500, 2_000])
@pytest.mark.parametrize("share", [1, 2, 100])
def test_a_record_that_fails_costs_about_what_a_record_costs(
    share: int, size: int, monkeypatch: pytest.MonkeyPatch
):
    """Counted in calls and letters, so that a busy machine changes nothing: of all records, of half, of one in 100."""
    operator, written, write = Refusing(), [], Letters.of_record

    def count(self: Letters, *given: Any, **more: Any) -> None:
        written.append(given)
        write(self, *given, **more)

    monkeypatch.setattr(Letters, "of_record", count)
    with Harness(refusing(operator), partitions=1) as harness:
        users = ("bad" if number % share == share - 1 else "good" for number in range(size))
        harness.send(VIEWS, *[View("page", user) for user in users])
        harness.run()
        assert len(harness.dead_letters()) == size // share
        assert operator.calls[0] + len(written) <= CALLS_MAX * size


def test_a_task_trusts_its_records_again_after_a_while(monkeypatch):
    monkeypatch.setattr(careful, "CALM_AFTER", 20)
    with Harness(refusing(Refusing()), partitions=1) as harness:
        tasks = harness.workers[0].loop.roster.tasks.values()
        harness.send(VIEWS, View("a", "bad"))
        harness.run()
        assert [task.careful is not None for task in tasks] == [False, True]
        for _ in range(40):
            harness.send(VIEWS, View("a"))
            harness.run()
        assert [task.careful is not None for task in tasks] == [False, False]
        harness.send(VIEWS, View("a", "bad"), View("a"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"a": 41}
        assert len(harness.dead_letters()) == 2


class Ringing(Alarms):
    """Refuses every second timer, after it has rung."""

    calls = 0

    def on_timer(self, timer: Any, ctx: sk.Context[str, str]) -> None:
        Ringing.calls += 1
        super().on_timer(timer, ctx)
        if timer.time % 2:
            raise ValueError(f"not {timer.time}")


def test_timers_that_fail_are_each_undone_alone():
    Ringing.calls = 0
    with Harness(ringing(Ringing()), partitions=1) as harness:
        harness.send(ORDERS, Order(0, set=list(range(10, 210))), Order(300), Order(301), key="a")
        harness.run()
        harness.advance(1)
        harness.run()
        assert harness.read(RINGS) == [f"a@{time}" for time in range(10, 210, 2)]
        times = [int(letter.headers["streamkit.timestamp"] or b"") for letter in harness.dead_letters()]
        assert times == list(range(11, 210, 2))
        assert Ringing.calls <= 2 * 200


def test_results_that_were_held_back_and_fail_are_each_set_aside_at_once():
    calls = 0

    def refuse(page: str, views: int) -> Count:
        nonlocal calls
        calls += 1
        if page.startswith("bad"):
            raise ValueError(f"no {page}")
        return Count(page, views)

    pipeline = sk.pipeline("held")
    pipeline.read_keyed(VIEWS).count(name="n", updates="latest").map_keyed(refuse).write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        for number in range(60):
            kind = "bad" if number % 2 else "good"
            harness.send(VIEWS, View("x"), key=f"{kind}-{number}")
        harness.run()
        assert {count.page for count in harness.read(COUNTS)} == {f"good-{n}" for n in range(0, 60, 2)}
        assert len(harness.dead_letters()) == 30
        assert calls <= 3 * 60


# -- state that cannot be stored -----------------------------------------------------------------------------------------


class Storing(sk.Operator[str, View, Count]):
    """Keeps what it is told to keep."""

    views = sk.value(int, 0)
    kept = sk.map_of(str, list[int])

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.views.set(self.views.get() + 1)
        ctx.emit(Count(value.page, self.views.get()))
        match value.user:
            case "beyond":
                self.views.set(1 << 70)
            case "large":
                self.kept.put("x", [1] * 2_000_000)
            case "other":
                self.views.set("seven")  # type: ignore[arg-type]
            case "others":
                self.kept.put("x", ["seven"])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("user", "store", "text"),
    [
        ("beyond", "storing.views", b"cannot be written"),
        ("large", "storing.kept", b"bytes, and its changelog takes"),
        ("other", "storing.views", b"not of the declared type"),
        ("others", "storing.kept", b"not of the declared type"),
    ],
)
def test_a_record_whose_state_cannot_be_stored_is_a_dead_letter(user, store, text):
    pipeline = sk.pipeline("storing")
    pipeline.read(VIEWS).key_by(page_of).process(Storing(), name="storing").write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        for number in range(30):
            harness.send(VIEWS, View("a", user if number % 10 == 5 else "ann"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"a": 27}
        letters = [
            each for each in harness.dead_letters() if text in (each.headers["streamkit.error"] or b"")
        ]
        assert len(letters) == 3
        assert letters[0].headers["streamkit.step"] == b"state"
        error = letters[0].headers["streamkit.error"] or b""
        assert f'store "{store}"'.encode() in error
        assert b"key b'a'" in error
        harness.crash()
        harness.restart()
        harness.send(VIEWS, View("a"))
        harness.run()
        assert harness.read(COUNTS) == [Count("a", 28)]


class Following(Storing):
    """Fails on what a record before it has left in the state."""

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.kept.put(str(self.views.get()), [])
        if self.views.get() > 1 << 63:
            raise ValueError("what is this?")
        super().on_record(value, ctx)


def test_a_record_that_failed_only_because_of_the_state_before_it_is_not_set_aside():
    pipeline = sk.pipeline("following")
    pipeline.read_keyed(VIEWS).process(Following(), name="following").write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        harness.crash()
        harness.send(VIEWS, View("a"), View("a", "beyond"), View("a"), View("a"), key="a")
        harness.restart()  # now all of them are read at once
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"a": 3}
        (letter,) = harness.dead_letters()
        assert letter.headers["streamkit.step"] == b"state"


def test_a_sum_beyond_64_bits_is_a_dead_letter_of_the_record_that_made_it():
    numbers, sums = sk.topic("numbers", int), sk.topic("sums", int)
    pipeline = sk.pipeline("sums")
    pipeline.read_keyed(numbers).sum(lambda number: number).filter(lambda number: number < 1 << 62).write(
        sums
    )
    with Harness(pipeline, partitions=1) as harness:
        harness.send(numbers, 1, (1 << 63) - 1, 1 << 63, 2, key="a")
        harness.run()
        assert harness.read(sums) == [1]
        assert len(harness.dead_letters()) == 1  # 1 + 2**63 still fits, and 2**63 more do not
        harness.send(numbers, 5, key="b")
        harness.run()
        assert harness.read(sums) == [5]


# -- the policy to fail ------------------------------------------------------------------------------------------------------


def test_fail_commits_what_came_before_and_says_where_it_waits():
    with capture_logs() as logs, Harness(refusing(Refusing(), on_error=sk.fail()), partitions=1) as harness:
        harness.crash()
        harness.send(VIEWS, View("a"), View("a"), View("a", "bad"), View("a"))
        harness.restart()  # now all of them are read at once
        harness.advance(40)
        assert check_running_counts(harness.read(COUNTS)) == {"a": 2}
        assert harness.dead_letters() == []
    told = [entry for entry in logs if "policy is to fail" in entry["event"]]
    assert told
    for entry in told:
        assert entry["at"] == "refusing.page_of.shuffle.1[0]@2"
        assert entry["step"] == "refusing"
        assert "ValueError: no bad" in entry["error"]
        assert "test_careful.py" in entry["line"]
    assert "on_record" in told[0]["traceback"]
    assert not any("traceback" in entry for entry in told[1:])
    assert [entry.get("failures", 1) for entry in told] == [1, 2, 4, 8][: len(told)]
    assert len(told) >= 3
    waits = [entry["seconds"] for entry in logs if entry["event"] == "task waits"]
    assert waits == sorted(waits)
    assert len(waits) < 12  # they grow


def test_fail_tells_in_full_again_when_the_error_or_the_record_is_another():
    errors = [*[ValueError] * 5, *[KeyError] * 3]

    def strict(view: View) -> Count:
        if view.user == "bad" and errors:
            raise errors.pop(0)(f"at {len(errors)}")
        if view.user == "worse":
            raise KeyError("worse")
        return Count(view.page, 1)

    pipeline = sk.pipeline("strict", on_error=sk.fail())
    pipeline.read(VIEWS).map(strict).write(COUNTS)
    with capture_logs() as logs, Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("a", "bad"), View("a", "worse"))
        harness.advance(600)
    told = [entry for entry in logs if "policy is to fail" in entry["event"]]
    kinds = [(entry["at"], entry["error"].split(":")[0], entry.get("failures", 1)) for entry in told]
    assert kinds[:6] == [
        ("views[0]@0", "ValueError", 1),
        ("views[0]@0", "ValueError", 2),
        ("views[0]@0", "ValueError", 4),
        ("views[0]@0", "KeyError", 1),
        ("views[0]@0", "KeyError", 2),
        ("views[0]@1", "KeyError", 1),
    ]
    assert ["traceback" in entry for entry in told] == [kind[2] == 1 for kind in kinds]


def test_failures_in_a_row_are_told_once_and_then_counted():
    with capture_logs() as logs, Harness(refusing(Refusing()), partitions=1) as harness:
        for _ in range(100):
            harness.send(VIEWS, View("a", "bad"))
        harness.run()
        harness.advance(11)
        harness.send(VIEWS, View("a"))
        harness.run()
        assert len(harness.dead_letters()) == 100
    told = [entry for entry in logs if entry["event"] == "record failed"]
    (summary,) = [entry for entry in logs if entry["event"] == "more failed in the same step"]
    assert len(told) == 1
    assert summary["count"] >= 99
