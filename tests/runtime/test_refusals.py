"""What the broker refuses for reasons that no setting tells: found by smaller spans, and set aside."""

import pytest
from structlog.testing import capture_logs

import streamkit as sk
from streamkit.errors import DataRefused, Misconfigured
from streamkit.model.keys import kafka_partition
from streamkit.model.topic_shape import TopicSpec
from streamkit.operators.process import Timer
from streamkit.runtime.refusals import FORGIVEN_AFTER_S, REFUSALS_MAX, Refusals
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, check_running_counts, counting, page_of

OUT = sk.topic("copied", View)


def copying(**options) -> sk.Pipeline:
    pipeline = sk.pipeline("copying", **options)
    pipeline.read(VIEWS).write(OUT)
    return pipeline


def refuse(harness: Harness, topic: str, *words: bytes) -> None:
    """From now on the broker takes no record of this topic whose value has one of these words in it."""
    found = harness._broker.topics.topic(topic)
    found.refuses = lambda draft: any(word in (draft[2] or b"") for word in words)


def pages(harness: Harness) -> list[str]:
    return sorted(view.page for view in harness.read(OUT))


@pytest.mark.parametrize("guarantee", ["exactly_once", "at_least_once"])
def test_the_very_records_that_are_refused_become_dead_letters(guarantee):
    with Harness(copying(), guarantee=guarantee, partitions=3) as harness:
        refuse(harness, "copied", b"bad")
        sent = [f"bad-{number}" if number in (3, 200, 201, 599) else f"{number}" for number in range(600)]
        for number, page in enumerate(sent):
            harness.send(VIEWS, View(page), key=str(number))
        harness.run()
        assert set(pages(harness)) == {page for page in sent if not page.startswith("bad")}
        letters = harness.dead_letters()
        assert sorted(letter.value for letter in letters) == sorted(
            b'{"page":"bad-%d","user":"ann"}' % number for number in (3, 200, 201, 599)
        )
        assert {letter.headers["streamkit.step"] for letter in letters} == {b"commit"}
        assert all(b"copied" in letter.headers["streamkit.error"] for letter in letters)


def test_behind_a_shuffle_the_state_is_what_it_was_without_the_refused_records():
    with Harness(counting(), workers=2) as harness:
        refuse(harness, "counts", b'"page":"bad"')
        for number in range(90):
            harness.send(VIEWS, View("bad" if number % 30 == 7 else f"page-{number % 5}"), key=str(number))
        harness.run()
        counted = check_running_counts(harness.read(COUNTS))
        assert sum(counted.values()) == 87
        assert len(harness.dead_letters()) == 3


def test_a_task_whose_policy_is_to_fail_waits_and_the_others_go_on():
    with Harness(copying(on_error=sk.fail()), partitions=4) as harness:
        refuse(harness, "copied", b"bad")
        harness.send(VIEWS, View("bad"), key="key-of-the-bad")
        for number in range(40):
            harness.send(VIEWS, View(f"{number}"), key=f"k{number}")
        harness.advance(200)
        assert 20 < len(pages(harness)) < 40
        assert harness.dead_letters() == []
        refuse(harness, "copied")  # somebody has mended it
        harness.run()
        assert len(pages(harness)) > 0


def test_skip_leaves_them_out():
    with Harness(copying(on_error=sk.skip())) as harness:
        refuse(harness, "copied", b"bad")
        harness.send(VIEWS, View("a"), View("bad"), View("b"))
        harness.run()
        assert pages(harness) == ["a", "b"]
        assert harness.dead_letters() == []


class Reminder(sk.Operator[str, View, Count]):
    """Speaks only when a timer tells it to."""

    views = sk.value(int, 0)

    def on_record(self, value: View, ctx: sk.Context[str, Count]) -> None:  # noqa: ARG002
        self.views.set(self.views.get() + 1)
        ctx.set_timer(ctx.timestamp + 10_000)

    def on_timer(self, timer: Timer, ctx: sk.Context[str, Count]) -> None:  # noqa: ARG002
        ctx.emit(Count(ctx.key, self.views.get()))


def test_a_timer_whose_result_is_refused_is_set_aside_and_no_record_is():
    views = sk.topic("views", View, late=sk.seconds(1))
    pipeline = sk.pipeline("reminding")
    pipeline.read(views).key_by(page_of).process(Reminder()).write(COUNTS)
    with Harness(pipeline, partitions=2) as harness:
        refuse(harness, "counts", b'"page":"bad"')
        start = harness.now_ms
        for number in range(40):
            page = "bad" if number == 11 else f"page-{number}"
            harness.send(views, View(page), key=page, timestamp=start + number)
        for key in ("a", "b", "c", "d"):  # both partitions, and event time with them
            harness.send(views, View(key), key=key, timestamp=start + 60_000)
        harness.advance(60)
        assert sorted(count.page for count in harness.read(COUNTS)) == sorted(
            f"page-{number}" for number in range(40) if number != 11
        )
        (letter,) = harness.dead_letters()
        assert (letter.key, letter.value) == (b"bad", None)
        assert letter.headers["streamkit.timestamp"] == b"%d" % (start + 11 + 10_000)


def test_a_result_that_was_held_back_is_refused_with_its_record():
    pipeline = sk.pipeline("latest")
    keyed = pipeline.read(VIEWS).key_by(page_of)
    keyed.count(name="n", updates="latest").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline) as harness:
        refuse(harness, "counts", b'"page":"bad"')
        for page in ("a", "bad", "b", "a", "bad"):
            harness.send(VIEWS, View(page))
        harness.run()
        last = {count.page: count.views for count in harness.read(COUNTS)}
        assert last == {"a": 2, "b": 1}
        assert len(harness.dead_letters()) == 2


def test_when_nothing_is_refused_any_more_spans_are_as_large_as_before():
    with Harness(copying()) as harness:
        refuse(harness, "copied", b"bad")
        harness.send(VIEWS, View("bad"))
        harness.run()
        for number in range(60):
            harness.send(VIEWS, View(f"{number}"))
            harness.run()
        (loop,) = [worker.loop for worker in harness.workers]
        assert not loop._refusals.is_searching
        assert len(harness.dead_letters()) == 1


@pytest.mark.parametrize("policy", [sk.dead_letter(), sk.fail()])
def test_a_changelog_that_takes_nothing_ends_with_a_person(policy):
    with Harness(counting(on_error=policy)) as harness:
        changelog = list(harness._plan.changelogs())[-1]
        harness._broker.topics.topic(changelog).refuses = lambda _draft: True
        harness.send(VIEWS, View("a"))
        with pytest.raises(Misconfigured, match="no record and no timer is behind it") as ended:
            harness.run()
        assert changelog in ended.value.problem


def test_a_dead_letter_that_is_refused_too_ends_with_a_person():
    with Harness(copying()) as harness:
        refuse(harness, "copied", b"bad")
        refuse(harness, "copying.dead-letters", b"bad")
        harness.send(VIEWS, View("bad"))
        with pytest.raises(Misconfigured, match="it is a dead letter") as ended:
            harness.run()
        assert "copying.dead-letters" in ended.value.problem


def configure(harness: Harness, topic: str, **config: str) -> None:
    settings = {name.replace("_", "."): value for name, value in config.items()}
    harness._do(harness._log.admin().configure(topic, settings))


def test_a_limit_that_was_lowered_meanwhile_is_learnt_and_kept():
    with Harness(copying(), partitions=1) as harness, capture_logs() as logs:
        harness.send(VIEWS, View("a"))
        harness.run()
        configure(harness, "copied", max_message_bytes="5000", cleanup_policy="compact")
        harness.send(VIEWS, *[View("x" * 2000) for _ in range(20)], key="k")
        harness.send(VIEWS, View("y" * 6000), View("b"), key="k")
        harness.send(VIEWS, View("nobody's"))
        harness.run()
        assert [len(page) for page in pages(harness)] == [1, 1, *[2000] * 20]
        errors = sorted(letter.headers["streamkit.error"] for letter in harness.dead_letters())
        assert b"larger than topic" in errors[0]
        assert b"without a key" in errors[1]
        refusals = [entry for entry in logs if "looking for the record" in entry["event"]]
        assert refusals == []  # nothing had to be looked for


def test_an_output_topic_that_was_deleted_ends_with_a_person():
    with Harness(copying()) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        harness._do(harness._log.admin().delete(["copied"]))
        harness.send(VIEWS, View("b"))
        with pytest.raises(Misconfigured, match='topic "copied" does not exist any more') as ended:
            harness.run()
        assert "`streamkit topics apply --execute`" in ended.value.hint


def test_a_dead_letter_topic_that_was_deleted_is_created_by_the_next_start():
    with Harness(copying()) as harness:
        letters = harness._plan.dead_letter_topic
        harness.run()
        harness._do(harness._log.admin().delete([letters]))
        harness.send_bytes("views", b"garbage")
        with pytest.raises(Misconfigured, match=f'topic "{letters}" does not exist any more') as ended:
            harness.run()
        assert ended.value.hint == "start the worker again: it creates this topic itself"
        harness.restart()
        harness.run()
        assert len(harness.dead_letters()) == 1


def test_an_input_topic_that_was_deleted_ends_with_a_person():
    with Harness(copying()) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        harness._do(harness._log.admin().delete(["views"]))
        with pytest.raises(Misconfigured, match='topic "views" does not exist') as ended:
            harness._do(harness.workers[0].work)
        assert "`streamkit topics apply --execute`" in ended.value.hint


@pytest.mark.parametrize("partitions", [1, 4, 9])
def test_an_output_topic_that_was_made_anew_is_used_if_it_has_as_many_partitions(partitions):
    with Harness(copying(), partitions=4) as harness:
        admin = harness._log.admin()
        for number in range(20):
            harness.send(VIEWS, View(f"{number}"), key=str(number))
        harness.run()
        harness._do(admin.delete(["copied"]))
        for number in range(20):
            harness.send(VIEWS, View(f"{number}"), key=str(number))
        harness.advance(0.2)  # it has noticed that its topic is gone
        harness._read_from.clear()
        harness._do(admin.create([TopicSpec("copied", partitions)]))
        if partitions < 4:
            with pytest.raises(Misconfigured, match="has 1 partition, and had 4"):
                harness.run()
            return
        harness.run()
        found = harness.records(OUT)
        assert len(found) == 20
        assert {each.partition for each in found} == {
            kafka_partition(each.key.encode(), partitions) for each in found
        }


def test_a_search_that_finds_nothing_ends_with_a_person():
    """As when commits are refused now and then, whatever is in them."""
    refusals = Refusals(None)  # type: ignore[arg-type]
    error = DataRefused("the broker refused the data", topic="out", where="out[0]")
    for number in range(REFUSALS_MAX):
        refusals.refused(error, {}, float(number))
        refusals.records_max = None
    with pytest.raises(Misconfigured, match="no single record or timer is to blame"):
        refusals.refused(error, {}, float(REFUSALS_MAX))
    patient = Refusals(None)  # type: ignore[arg-type]
    for number in range(2 * REFUSALS_MAX):
        patient.refused(error, {}, number * 2 * FORGIVEN_AFTER_S)
        patient.records_max = None
