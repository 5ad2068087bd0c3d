import re

import msgspec
import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.operators.aggregators import Aggregator
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, check_running_counts, counting, page_of


def test_bytes_that_cannot_be_decoded_become_a_dead_letter_with_its_reason():
    with Harness(counting()) as harness:
        harness.send(VIEWS, View("home"))
        harness.send_bytes("views", b"{not json", key=b"k", headers=[("trace", b"7")])
        harness.send(VIEWS, View("home"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": 2}
        (letter,) = harness.dead_letters()
        assert (letter.key, letter.value) == (b"k", b"{not json")
        assert letter.headers["streamkit.topic"] == b"views"
        assert letter.headers["streamkit.step"] == b"decode"
        assert b"malformed" in letter.headers["streamkit.error"]
        assert letter.headers["trace"] == b"7"


def raising_on(bad: str):
    def refuse(view: View) -> View:
        if view.page == bad:
            raise ValueError(f"no {bad} please")
        return view

    return refuse


def test_a_record_whose_step_raises_is_set_aside_with_its_traceback():
    pipeline = sk.pipeline("pages")
    pipeline.read(VIEWS).map(raising_on("bad")).key_by(page_of).count(name="n").map_keyed(as_count).write(
        COUNTS
    )
    with Harness(pipeline) as harness:
        for page in ["a", "bad", "a", "bad", "b"]:
            harness.send(VIEWS, View(page))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"a": 2, "b": 1}
        letters = harness.dead_letters()
        assert len(letters) == 2
        assert letters[0].headers["streamkit.step"] == b"refuse"
        assert b"ValueError: no bad please" in letters[0].headers["streamkit.error"]
        assert b"raise ValueError" in letters[0].headers["streamkit.traceback"]


@pytest.mark.parametrize("user", ["ann", "x" * 600_000])
def test_a_letter_of_a_shuffled_record_can_be_read(user):
    pipeline = sk.pipeline("pages")
    pipeline.read(VIEWS).key_by(page_of, name="by_page").map(lambda _: 1 // 0, to=int).write(
        sk.topic("out", int)
    )
    with capture_logs() as logs, Harness(pipeline, partitions=1) as harness:
        harness.send(VIEWS, View("bad", user))
        harness.run()
        (letter,) = harness.dead_letters()
    (told,) = [entry for entry in logs if entry["event"] == "record failed"]
    assert told["step"].encode() == letter.headers["streamkit.step"]
    assert re.search(r"test_failures\.py:\d+$", told["line"])
    assert letter.key == b"bad"
    assert msgspec.msgpack.decode(letter.value, type=View) == View("bad", user)
    assert letter.headers["streamkit.topic"] == b"pages.by_page.shuffle.1"
    assert letter.headers["streamkit.stage"] == b"by_page"
    assert (letter.headers["streamkit.partition"], letter.headers["streamkit.offset"]) == (b"0", b"0")
    assert b"test_failures.py" in letter.headers["streamkit.traceback"]
    assert b"1 // 0" in letter.headers["streamkit.traceback"]
    # One that would make the letter too large is left out: the value itself is worth more.
    assert letter.headers.get("streamkit.value") == (
        b'{"page":"bad","user":"ann"}' if user == "ann" else None
    )


class CountThenRaise(sk.Operator[str, View, Count]):
    """Changes state and emits before it raises: the whole span has to be taken back."""

    views = sk.value(int, 0)

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:
        self.views.set(self.views.get() + 1)
        ctx.emit(Count(value.page, self.views.get()))
        if value.user == "mallory":
            raise ValueError("mallory again")


def test_half_a_record_leaves_no_trace():
    pipeline = sk.pipeline("half")
    pipeline.read(VIEWS).key_by(page_of).process(CountThenRaise()).write(COUNTS)
    with Harness(pipeline, workers=2) as harness:
        for number in range(60):
            user = "mallory" if number % 10 == 3 else "ann"
            harness.send(VIEWS, View(f"page-{number % 4}", user), key=str(number))
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 54
        assert len(harness.dead_letters()) == 6


def test_skip_only_counts():
    with Harness(counting(on_error=sk.skip())) as harness:
        harness.send_bytes("views", b"garbage")
        harness.send(VIEWS, View("home"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": 1}
        assert harness.dead_letters() == []


def test_a_record_that_works_at_the_third_try_is_not_set_aside():
    attempts: list[str] = []

    def flaky(view: View) -> View:
        if view.page == "flaky":
            attempts.append(view.page)
            if len(attempts) < 3:
                raise ConnectionError("service away")
        return view

    pipeline = sk.pipeline("flaky", on_error=sk.dead_letter(retries=3, delay_s=0.5))
    pipeline.read(VIEWS).map(flaky).key_by(page_of).count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline) as harness:
        for page in ["a", "flaky", "a"]:
            harness.send(VIEWS, View(page))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"a": 2, "flaky": 1}
        assert harness.dead_letters() == []
        assert len(attempts) == 3


def test_a_failing_task_does_not_stop_the_others():
    pipeline = sk.pipeline("strict", on_error=sk.fail())
    pipeline.read_keyed(VIEWS).map(raising_on("bad")).count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline, workers=1, partitions=4) as harness:
        harness.send(VIEWS, View("bad"), key="key-of-the-bad")
        for number in range(40):
            harness.send(VIEWS, View("good"), key=f"k{number}")
        harness.advance(20)
        done = check_running_counts(harness.read(COUNTS))
        assert 20 < len(done) < 40  # the other partitions went on, the one with the bad record waits
        assert harness.dead_letters() == []


def test_an_output_that_is_too_large_is_a_dead_letter():
    def grow(view: View) -> View:
        return View("x" * 2_000_000) if view.page == "big" else view

    out = sk.topic("grown", View)
    pipeline = sk.pipeline("grow")
    pipeline.read(VIEWS).map(grow).write(out)
    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("a"), View("big"), View("b"))
        harness.run()
        assert sorted(view.page for view in harness.read(out)) == ["a", "b"]
        (letter,) = harness.dead_letters()
        assert b"larger than" in letter.headers["streamkit.error"]


def test_a_topic_that_takes_less_than_others_gets_smaller_batches():
    out = sk.topic("small", View)
    pipeline = sk.pipeline("small")
    pipeline.read(VIEWS).write(out)
    with Harness(pipeline, topic_configs={"small": {"max.message.bytes": "20000"}}) as harness:
        harness.send(VIEWS, *[View(f"{number:03d}" + "x" * 3000) for number in range(60)], View("y" * 30_000))
        harness.run()
        assert len(harness.read(out)) == 60
        (letter,) = harness.dead_letters()
        assert b"larger than" in letter.headers["streamkit.error"]


def test_a_record_without_a_key_for_a_compacted_topic_is_a_dead_letter_and_the_others_go_on():
    out = sk.topic("latest", View)
    pipeline = sk.pipeline("compacted")
    pipeline.read(VIEWS).write(out)
    with Harness(pipeline, topic_configs={"latest": {"cleanup.policy": "compact"}}) as harness:
        harness.send(VIEWS, View("a"), key="a")
        harness.send(VIEWS, View("nobody's"))
        harness.send(VIEWS, View("b"), key="b")
        harness.run()
        assert sorted(view.page for view in harness.read(out)) == ["a", "b"]
        (letter,) = harness.dead_letters()
        assert b'without a key for topic "latest"' in letter.headers["streamkit.error"]


def test_a_record_that_is_too_old_for_its_topic_is_a_dead_letter():
    out = sk.topic("recent", View)
    pipeline = sk.pipeline("recent")
    pipeline.read(VIEWS).write(out)
    configs = {"recent": {"message.timestamp.before.max.ms": "3600000"}}
    with Harness(pipeline, topic_configs=configs) as harness:
        harness.send(VIEWS, View("old"), timestamp=harness.now_ms - 7_200_000)
        harness.send(VIEWS, View("new"))
        harness.run()
        assert [view.page for view in harness.read(out)] == ["new"]
        (letter,) = harness.dead_letters()
        assert b'older than topic "recent" accepts' in letter.headers["streamkit.error"]


@pytest.mark.parametrize("policy", [sk.dead_letter(), sk.skip()])
def test_a_topic_full_of_garbage_does_not_stop_the_pipeline(policy):
    with Harness(counting(on_error=policy), workers=2) as harness:
        for number in range(300):
            harness.send_bytes("views", b"\x00garbage %d" % number, key=b"%d" % number)
        harness.send(VIEWS, View("home"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": 1}
        assert len(harness.dead_letters()) == (300 if policy.action == "dead_letter" else 0)


def test_a_result_that_cannot_be_sent_on_at_the_end_of_the_span_is_set_aside_by_its_key():
    def refuse(page: str, views: int) -> Count:
        if page == "bad":
            raise ValueError("no bad counts")
        return Count(page, views)

    pipeline = sk.pipeline("held")
    pipeline.read(VIEWS).key_by(page_of).count(name="n", updates="latest").map_keyed(refuse).write(COUNTS)
    with Harness(pipeline) as harness:
        for number in range(40):
            harness.send(VIEWS, View("bad" if number % 8 == 0 else f"page-{number % 3}"), key=str(number))
        harness.run()
        last = {count.page: count.views for count in harness.read(COUNTS)}
        assert sum(last.values()) == 35
        letters = harness.dead_letters()
        assert {letter.key for letter in letters} == {b"bad"}
        assert letters[-1].value == b"5"
        assert letters[-1].headers["streamkit.step"] == b"refuse"


def test_many_records_that_fail_are_each_tried_as_often_as_the_policy_says():
    tries: dict[str, int] = {}

    def refuse(view: View) -> View:
        if view.page.startswith("bad"):
            tries[view.user] = tries.get(view.user, 0) + 1
            raise ValueError("no")
        return view

    pipeline = sk.pipeline("patient", on_error=sk.dead_letter(retries=2, delay_s=0.05))
    pipeline.read(VIEWS).map(refuse).key_by(page_of).count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        for number in range(30):
            page = "bad" if number % 3 == 0 else "good"
            harness.send(VIEWS, View(page, user=f"u{number}"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"good": 20}
        assert len(harness.dead_letters()) == 10
        assert set(tries.values()) == {3}


def test_a_worker_can_be_killed_while_its_commit_is_in_flight():
    with Harness(counting()) as harness:
        committer = harness.workers[0].loop.committer
        sent = 0
        while not committer.busy:
            harness.send(VIEWS, View("home"), key=str(sent))
            sent += 1
            for _ in range(30):
                if not committer.busy:
                    harness.advance(0.00003)
            assert sent < 500, "no commit was ever in flight"
        harness.crash()
        harness.restart()
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": sent}


def test_a_record_that_is_too_large_for_a_dead_letter_leaves_one_without_its_value():
    with Harness(counting(), partitions=2) as harness:
        harness.send_bytes("views", b"{" + b"x" * 1_048_300, key=b"a")  # its topic took it
        harness.send(VIEWS, View("home"), key="d")
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"home": 1}
        (letter,) = harness.dead_letters()
        assert (letter.key, letter.value) == (b"a", None)
        assert letter.headers["streamkit.too-large"] == b"1048302"
        assert letter.headers["streamkit.offset"] == b"0"


class Users(Aggregator[View, list[str], list[str]]):
    """Keeps one list per key and works on it, as aggregators may."""

    def create(self) -> list[str]:
        return []

    def add(self, accumulator: list[str], value: View, /) -> list[str]:
        accumulator.append(value.user)
        return accumulator

    def result(self, accumulator: list[str], /) -> list[str]:
        if accumulator[-1] == "bad":
            raise ValueError("no result for this one")
        return list(accumulator)


def test_an_accumulator_that_was_changed_before_its_record_failed_is_taken_back():
    users = sk.topic("users", list[str])
    pipeline = sk.pipeline("users")
    pipeline.read(VIEWS).key_by(page_of).aggregate(Users(), name="users").write(users)
    with Harness(pipeline, partitions=1) as harness:
        for user in ("ann", "bad", "bob"):
            harness.send(VIEWS, View("home", user))
        harness.run()
        assert harness.read(users)[-1] == ["ann", "bob"]
        assert len(harness.dead_letters()) == 1
