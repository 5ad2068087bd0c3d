"""The pipeline of page_views in the test harness: no broker, milliseconds."""

from collections import Counter
from random import Random

from services.page_views.load import make_views
from services.page_views.pipeline import COUNTS, VIEWS, PageCount, PageView, is_human, page_views
from streamkit.testing import Harness


def test_views_are_counted_by_page() -> None:
    """Three views, two pages."""
    with Harness(page_views) as harness:
        for user, page in [("ann", "/"), ("bob", "/cart"), ("bob", "/")]:
            harness.send(VIEWS, PageView(user, page, 0), key=user)
        harness.run()
        counts = sorted((each.page, each.views) for each in harness.read(COUNTS))
    assert counts == [("/", 1), ("/", 2), ("/cart", 1)]


def test_bots_do_not_count() -> None:
    """They leave no trace at all."""
    with Harness(page_views) as harness:
        harness.send(VIEWS, PageView("bot-1", "/", 0), PageView("ann", "/", 0), key="any")
        harness.run()
        assert harness.read(COUNTS) == [PageCount("/", 1)]


def test_a_count_is_written_under_its_page() -> None:
    """Other consumers find a page in one partition, in order."""
    with Harness(page_views) as harness:
        harness.send(VIEWS, PageView("ann", "/cart", 0), key="ann", timestamp=1234)
        harness.run()
        (record,) = harness.records(COUNTS)
    assert (record.key, record.value, record.timestamp) == ("/cart", PageCount("/cart", 1), 1234)


def test_what_is_no_page_view_becomes_a_dead_letter() -> None:
    """And the views around it are counted."""
    with Harness(page_views) as harness:
        harness.send_bytes(VIEWS.name, b'{"user": "ann"}')
        harness.send(VIEWS, PageView("ann", "/", 0), key="ann")
        harness.run()
        assert harness.read(COUNTS) == [PageCount("/", 1)]
        assert len(harness.dead_letters()) == 1


def test_a_crash_counts_no_view_twice() -> None:
    """Two workers under the demo's own traffic, each killed in turn."""
    views = make_views(400, Random(7))  # noqa: S311 - visitors, not secrets
    with Harness(page_views, workers=2) as harness:
        for turn in range(4):
            for view in views[turn * 100 : turn * 100 + 100]:
                harness.send(VIEWS, view, key=view.user)
            harness.advance(0.01)
            harness.crash(turn % 2)
            harness.restart(turn % 2)
        harness.run()
        counts = [(each.page, each.views) for each in harness.read(COUNTS)]
    wanted = Counter(view.page for view in views if is_human(view))
    assert sorted(counts) == sorted((page, n) for page, views in wanted.items() for n in range(1, views + 1))
