"""Where a record came from, and which of its headers go on: what operators are told, and what stands in the results."""

import json
from typing import Any

import pytest

import streamkit as sk
from streamkit.errors import InvalidPipeline
from streamkit.runtime.local import HandedBatch, Way
from streamkit.task.emit import RECORD_OVERHEAD_BYTES
from streamkit.testing import Harness
from tests.progress.alarms import raw, shuffle_topics
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, page_of

GATHERED_S = 0.2
CARRIED = ("traceparent", "tenant")
TRACE, OTHER = ("traceparent", b"00-1-1-01"), ("secret", b"x")
TOLD = sk.topic("told", str)
CLICKS = sk.topic("clicks", View)


class Tell(sk.Operator[str, Any, str]):
    """Sends on what it is told of each record."""

    def on_record(self, value: Any, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
        origin = ctx.topic, ctx.partition, ctx.offset, [name for name, _ in ctx.headers]
        ctx.emit(json.dumps(origin))


def told(harness: Harness) -> list[list[Any]]:
    harness.run()
    return [json.loads(each) for each in harness.read(TOLD)]


def send(harness: Harness, page: str, *headers: tuple[str, bytes | None], key: bytes = b"k") -> None:
    harness.send(VIEWS, View(page), key=key.decode(), headers=list(headers))


def headers_of(harness: Harness, topic: sk.Topic[Any]) -> list[dict[str, bytes | None]]:
    harness.run()
    return [dict(record.headers) for record in harness.records(topic)]


# What an operator is told.


def test_an_operator_knows_topic_offset_and_headers_of_each_record():
    pipeline = sk.pipeline("telling")
    pipeline.read_keyed(VIEWS).process(Tell()).write(TOLD)
    with Harness(pipeline, partitions=1) as harness:
        for number in range(5):  # they are run in one go
            send(harness, "home", *[(f"h{each}", None) for each in range(number)])
        assert told(harness) == [
            ["views", 0, 0, []],
            ["views", 0, 1, ["h0"]],
            ["views", 0, 2, ["h0", "h1"]],
            ["views", 0, 3, ["h0", "h1", "h2"]],
            ["views", 0, 4, ["h0", "h1", "h2", "h3"]],
        ]


def test_what_it_is_told_is_of_the_record_in_hand_also_behind_other_steps_and_branches():
    pipeline = sk.pipeline("telling")
    views = pipeline.read_keyed(VIEWS).filter(lambda view: view.page != "no")
    views.flat_map(lambda view: [view, view], to=View).process(Tell()).write(TOLD)
    views.process(Tell(), name="again").write(TOLD, name="write_again")
    with Harness(pipeline, partitions=1, slice_records=2) as harness:
        for page in ("a", "no", "b"):
            send(harness, page)
        assert told(harness) == [["views", 0, 0, []]] * 3 + [["views", 0, 2, []]] * 3


def test_an_agent_is_told_the_same():
    pipeline = sk.pipeline("asking")

    @pipeline.agent(VIEWS, to=TOLD)
    async def tell(view: View, ctx: sk.Context[str, str]) -> None:
        ctx.emit(json.dumps([ctx.topic, ctx.offset, dict(ctx.headers)["tenant"].decode()]))

    with Harness(pipeline, partitions=1) as harness:
        send(harness, "home", ("tenant", b"acme"))
        assert told(harness) == [["views", 0, "acme"]]


@pytest.mark.parametrize("is_local", [True, False])
def test_behind_a_shuffle_only_what_was_carried_is_told_whichever_way_it_went(is_local: bool):
    pipeline = sk.pipeline("shuffled", carry_headers=CARRIED)
    pipeline.read(VIEWS).key_by(page_of).process(Tell()).write(TOLD)
    with Harness(pipeline, partitions=1, local_shuffle=is_local) as harness:
        harness.advance(GATHERED_S)
        assert (harness.workers[0].loop.local.way is Way.LOCAL) is is_local
        send(harness, "home", OTHER, TRACE)
        assert told(harness) == [[None, 0, None, ["traceparent"]]]
        assert len(raw(harness, shuffle_topics(pipeline)[0])) == (0 if is_local else 1)


class Later(sk.Operator[str, View, str]):
    """Says when its timer fires what it is told then."""

    def on_record(self, value: View, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
        ctx.set_timer(ctx.timestamp + 1000)

    def on_timer(self, timer: sk.Timer, ctx: sk.Context[str, str]) -> None:  # noqa: ARG002
        ctx.emit(json.dumps([ctx.topic, ctx.offset, list(ctx.headers)]))


def test_a_timer_is_told_nothing_though_a_record_makes_it_fire_and_its_results_carry_nothing():
    pipeline = sk.pipeline("later", carry_headers=CARRIED)
    keyed = pipeline.read_keyed(VIEWS)
    keyed.process(Later()).write(TOLD)
    keyed.process(Tell(), name="tell").write(TOLD, name="write_tell")
    with Harness(pipeline, partitions=1) as harness:
        value = json.dumps({"page": "home"}).encode()
        for number in range(3):  # the second makes the timer of the first due, before the third is run
            harness.send_bytes(VIEWS, value, key=b"k", timestamp=10**12 + 5000 * number, headers=[TRACE])
        harness.run()
        records = harness.records(TOLD)
        timers = [record for record in records if len(json.loads(record.value)) == 3]
        assert [json.loads(each.value) for each in timers] == [[None, None, []]] * len(timers)
        assert timers
        assert [dict(each.headers) for each in timers] == [{}] * len(timers)
        rest = [record for record in records if record not in timers]
        assert [json.loads(each.value)[2] for each in rest] == [0, 1, 2]
        assert [dict(each.headers) for each in rest] == [dict([TRACE])] * 3


# What goes on.


def test_headers_go_on_only_where_a_pipeline_asks_for_it():
    pipeline = sk.pipeline("plain")
    pipeline.read(VIEWS).map(lambda view: view, to=View).write(CLICKS)
    with Harness(pipeline) as harness:
        send(harness, "home", TRACE)
        assert headers_of(harness, CLICKS) == [{}]


@pytest.mark.parametrize("is_local", [True, False])
def test_a_trace_goes_through_two_shuffles_to_the_sink(is_local: bool):
    pipeline = sk.pipeline("traced", carry_headers=CARRIED)
    by_page = pipeline.read(VIEWS).map(lambda view: view, to=View).key_by(page_of)
    by_page.key_by(lambda view: view.user, name="by_user").write(CLICKS)
    with Harness(pipeline, local_shuffle=is_local) as harness:
        harness.advance(GATHERED_S)
        send(harness, "a", TRACE, OTHER, ("tenant", None))
        send(harness, "b", key=b"other")
        send(harness, "c", OTHER, key=b"third")
        found = headers_of(harness, CLICKS)
        assert sorted(found, key=len) == [{}, {}, {"traceparent": TRACE[1], "tenant": None}]


def test_every_record_carries_its_own():
    pipeline = sk.pipeline("traced", carry_headers=CARRIED)
    pipeline.read(VIEWS).key_by(page_of).process(Same()).write(CLICKS)
    with Harness(pipeline) as harness:
        harness.advance(GATHERED_S)
        for number in range(200):
            send(harness, f"p{number}", ("traceparent", b"p%d" % number), key=b"%d" % number)
        harness.run()
        records = harness.records(CLICKS)
        assert len(records) == 200
        assert all(record.headers["traceparent"] == record.value.page.encode() for record in records)


def test_records_of_united_topics_keep_their_own_apart():
    pipeline = sk.pipeline("united", carry_headers=CARRIED)
    united = pipeline.read(VIEWS).union(pipeline.read(CLICKS)).map(lambda view: view.page, to=str)
    united.key_by(lambda page: page).process(Same()).write(TOLD)
    with Harness(pipeline, partitions=1) as harness:
        for topic in (VIEWS, CLICKS, VIEWS):
            value = json.dumps({"page": topic.name}).encode()
            harness.send_bytes(topic, value, key=b"k", headers=[("tenant", topic.name.encode())])
        harness.run()
        records = harness.records(TOLD)
        assert sorted(record.value for record in records) == ["clicks", "views", "views"]
        assert all(record.headers["tenant"] == record.value.encode() for record in records)


class Same(sk.Operator[str, Any, Any]):
    """Sends on what comes."""

    def on_record(self, value: Any, ctx: sk.Context[str, Any]) -> None:
        ctx.emit(value)


class Aside(sk.Operator[str, View, View]):
    """Sends what comes out by its side, too."""

    sides = (sk.side("aside", View),)

    def on_record(self, value: View, ctx: sk.Context[str, View]) -> None:
        ctx.emit(value)
        ctx.emit_to(self.sides[0], value)


def test_what_leaves_by_a_side_carries_the_same() -> None:
    pipeline = sk.pipeline("aside", carry_headers=CARRIED)
    results = pipeline.read(VIEWS).key_by(page_of).process(Aside())
    results.side(Aside.sides[0]).process(Tell()).write(TOLD)
    with Harness(pipeline, partitions=1) as harness:
        send(harness, "home", TRACE, OTHER)
        harness.run()
        (record,) = harness.records(TOLD)
        assert json.loads(record.value) == [None, 0, None, ["traceparent"]]
        assert record.headers == dict([TRACE])


@pytest.mark.parametrize("updates", ["each", "latest"])
def test_what_is_made_of_many_records_carries_nothing_and_is_of_none(updates: Any):
    pipeline = sk.pipeline("counted", carry_headers=CARRIED)
    counts = pipeline.read_keyed(VIEWS).count(name="n", updates=updates)
    counts.map_keyed(as_count).write(COUNTS)
    counts.process(Tell()).write(TOLD)
    with Harness(pipeline, partitions=1) as harness:
        send(harness, "home", TRACE)
        assert headers_of(harness, COUNTS) == [{}]
        assert headers_of(harness, TOLD) == [{}]
        send(harness, "home", TRACE)
        assert told(harness) == [[None, 0, None, []]]


def test_a_window_carries_nothing():
    pipeline = sk.pipeline("windowed", carry_headers=CARRIED)
    windows = pipeline.read_keyed(VIEWS).window(sk.tumbling(sk.seconds(1)), trigger=sk.CountTrigger(1))
    windows.count().map(lambda number: Count("all", number), to=Count).write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        send(harness, "home", TRACE)
        assert headers_of(harness, COUNTS)[0] == {}


def test_a_late_record_says_its_time_and_carries_nothing():
    pipeline = sk.pipeline("late", carry_headers=CARRIED)
    windows = pipeline.read_keyed(VIEWS).window(sk.tumbling(sk.seconds(1)), late=CLICKS)
    windows.count().map(lambda number: Count("all", number), to=Count).write(COUNTS)
    with Harness(pipeline, partitions=1) as harness:
        for timestamp in (10**12 + 50_000, 10**12):
            harness.send_bytes(VIEWS, b'{"page":"home"}', key=b"k", timestamp=timestamp, headers=[TRACE])
        assert headers_of(harness, CLICKS) == [{"streamkit.timestamp": b"%d" % 10**12}]


def test_where_results_of_many_meet_single_records_none_is_told_what_may_not_be_true():
    pipeline = sk.pipeline("mixed", carry_headers=CARRIED)
    keyed = pipeline.read_keyed(VIEWS)
    first = keyed.reduce(lambda _old, new: new, name="last")
    first.union(keyed).write(CLICKS)
    with Harness(pipeline, partitions=1) as harness:
        send(harness, "home", TRACE)
        assert headers_of(harness, CLICKS) == [{}, {}]


@pytest.mark.parametrize("is_local", [True, False])
def test_a_dead_letter_has_the_headers_that_came_as_far_as_its_step(is_local: bool):
    def refuse(view: View) -> View:
        raise ValueError(view.page)

    pipeline = sk.pipeline("refusing", carry_headers=CARRIED)
    pipeline.read(VIEWS).key_by(page_of).map(refuse, to=View).write(CLICKS)
    with Harness(pipeline, local_shuffle=is_local) as harness:
        harness.advance(GATHERED_S)
        send(harness, "home", TRACE, OTHER)
        harness.run()
        (letter,) = harness.dead_letters()
        assert letter.headers["traceparent"] == TRACE[1]
        assert "secret" not in letter.headers


def test_records_that_are_run_one_by_one_carry_theirs_too():
    def refuse(view: View) -> View:
        if view.page == "bad":
            raise ValueError(view.page)
        return view

    pipeline = sk.pipeline("careful", carry_headers=CARRIED)
    pipeline.read_keyed(VIEWS).process(Same()).map(refuse, to=View).write(CLICKS)
    with Harness(pipeline, partitions=1) as harness:
        for page in ("a", "bad", "b"):
            send(harness, page, ("traceparent", page.encode()))
        assert [each["traceparent"] for each in headers_of(harness, CLICKS)] == [b"a", b"b"]
        (letter,) = harness.dead_letters()
        assert letter.headers["traceparent"] == b"bad"


def test_headers_that_make_a_record_too_large_are_refused_on_both_ways():
    batch = HandedBatch(1000)
    value = b"v" * (990 - RECORD_OVERHEAD_BYTES)
    assert batch.append(0, 5, b"k", value, [("h", b"12345678")]) is not None
    assert batch.append(0, 5, b"k", value, [("h", b"123456789")]) is None


@pytest.mark.parametrize("names", ["traceparent", ["traceparent", 5], [""], ["streamkit.timestamp"], {"a"}])
def test_names_that_cannot_be_carried_are_refused_when_the_pipeline_is_written(names: Any):
    with pytest.raises(InvalidPipeline, match=r"carr|a header's name") as raised:
        sk.pipeline("p", carry_headers=names)
    assert "carry_headers" in str(raised.value.hint)
