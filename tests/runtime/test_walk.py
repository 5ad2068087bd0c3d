from collections import Counter

import streamkit as sk
from streamkit.testing import Harness
from tests.runtime.pages import COUNTS, VIEWS, Count, View, as_count, check_running_counts, counting, page_of

PAGES = [f"page-{number}" for number in range(7)]


def test_every_record_is_counted_once_and_in_order_through_a_shuffle():
    with Harness(counting(), workers=1) as harness:
        for number in range(200):
            harness.send(VIEWS, View(PAGES[number % 7]), key=str(number))
        harness.run()
        last = check_running_counts(harness.read(COUNTS))
    assert last == Counter(PAGES[number % 7] for number in range(200))


def test_workers_share_the_tasks():
    with Harness(counting(), workers=3, partitions=6) as harness:
        shares = [len(worker.loop.roster.tasks) for worker in harness.workers]
        assert shares == [4, 4, 4]
        for number in range(100):
            harness.send(VIEWS, View(PAGES[number % 7]), key=str(number))
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 100


def test_a_key_keeps_its_timestamp_and_goes_where_kafka_would_put_it():
    with Harness(counting(), partitions=5) as harness:
        harness.send(VIEWS, View("home"), key="anything", timestamp=1234)
        harness.run()
        (record,) = harness.records(COUNTS)
        assert (record.key, record.value, record.timestamp) == ("home", Count("home", 1), 1234)
        assert record.partition == sk.model.keys.kafka_partition(b"home", 5)


def test_latest_updates_come_once_per_key_and_commit():
    pipeline = sk.pipeline("latest")
    pipeline.read(VIEWS).key_by(page_of).count(name="n", updates="latest").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline) as harness:
        harness.send(VIEWS, *[View("home")] * 50)
        harness.run()
        counts = harness.read(COUNTS)
        assert counts[-1] == Count("home", 50)
        assert len(counts) < 50
        assert [count.views for count in counts] == sorted({count.views for count in counts})


def test_two_steps_that_hold_back_let_go_in_the_order_of_the_chain():
    pipeline = sk.pipeline("two-latest")
    out = sk.topic("totals", int)
    pipeline.read_keyed(sk.topic("numbers", int)).count(name="n", updates="latest").sum(
        lambda n: n, name="total", updates="latest"
    ).write(out)
    with Harness(pipeline) as harness:
        harness.send(sk.topic("numbers", int), 1, 2, 3, key="k")
        harness.run()
        assert harness.read(out)[-1] >= 3


def test_a_topic_that_is_keyed_already_needs_no_shuffle():
    pipeline = sk.pipeline("direct")
    pipeline.read_keyed(VIEWS).count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline, workers=2) as harness:
        assert not pipeline.plan().shuffles()
        for number in range(30):
            harness.send(VIEWS, View("x"), key=PAGES[number % 7])
        harness.run()
        assert sum(check_running_counts(harness.read(COUNTS)).values()) == 30


def test_streams_can_be_joined_and_forked():
    more = sk.topic("more-views", View)
    copies = sk.topic("copies", View)
    pipeline = sk.pipeline("fork")
    both = pipeline.read(VIEWS).union(pipeline.read(more))
    both.filter(lambda view: view.page != "hidden").write(copies, name="copy")
    both.key_by(page_of).count(name="n").map_keyed(as_count).write(COUNTS)
    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("home"), View("hidden"))
        harness.send(more, View("home"))
        harness.run()
        assert sorted(view.page for view in harness.read(copies)) == ["home", "home"]
        assert check_running_counts(harness.read(COUNTS)) == {"home": 2, "hidden": 1}


def test_an_operator_class_has_state_per_key():
    class FirstVisit(sk.Operator[str, View, View]):
        seen = sk.value(bool, False)

        def on_record(self, value: View, ctx: sk.Context[str, View]) -> None:
            if not self.seen.get():
                self.seen.set(True)
                ctx.emit(value)

    firsts = sk.topic("firsts", View)
    pipeline = sk.pipeline("firsts")
    pipeline.read(VIEWS).key_by(page_of).process(FirstVisit()).write(firsts)
    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("a"), View("b"), View("a"))
        harness.run()
        harness.crash()
        harness.restart()
        harness.send(VIEWS, View("b"), View("c"))
        harness.run()
        assert sorted(view.page for view in harness.read(firsts)) == ["a", "b", "c"]


def test_an_agent_is_sugar_for_an_operator():
    pipeline = sk.pipeline("agents")

    @pipeline.agent(VIEWS, key=page_of, to=COUNTS)
    def count_views(view: View, ctx: sk.Context[str, Count], views=sk.value(int, 0)) -> None:
        views.set(views.get() + 1)
        ctx.emit(Count(view.page, views.get()))

    with Harness(pipeline) as harness:
        harness.send(VIEWS, View("a"), View("a"), View("b"))
        harness.run()
        assert check_running_counts(harness.read(COUNTS)) == {"a": 2, "b": 1}


def test_nothing_to_say_nothing_to_commit():
    with Harness(counting()) as harness:
        harness.send(VIEWS, View("a"))
        harness.run()
        before = harness.workers[0].loop.committer.commits
        harness.advance(60)
        assert harness.workers[0].loop.committer.commits == before
