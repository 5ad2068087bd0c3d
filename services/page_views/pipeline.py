"""page_views: how often was each page opened? Bots do not count.

page-views (by user) -> without bots -> brought together by page -> counted -> page-counts (by page)
"""

import os

import msgspec

import streamkit as sk


class PageView(msgspec.Struct):
    """Somebody opened a page. `at` is in milliseconds since 1970."""

    user: str
    page: str
    at: int


class PageCount(msgspec.Struct):
    """How often a page has been opened so far."""

    page: str
    views: int


# Empty in production. The demo sets it, so that runs beside each other on one broker do not meet.
SUFFIX = os.environ.get("PAGE_VIEWS_SUFFIX", "")

VIEWS = sk.topic("page-views" + SUFFIX, PageView)
COUNTS = sk.topic("page-counts" + SUFFIX, PageCount)


def is_human(view: PageView) -> bool:
    """Bots say who they are."""
    return not view.user.startswith("bot-")


def page_of(view: PageView) -> str:
    """The key by which views are counted."""
    return view.page


def as_count(page: str, views: int) -> PageCount:
    """What the world outside reads."""
    return PageCount(page, views)


page_views = sk.pipeline("page_views" + SUFFIX)
(
    page_views.read(VIEWS)
    .filter(is_human)
    .key_by(page_of)  # the shuffle: from here on each page has one owner
    .count(name="views_per_page")
    .map_keyed(as_count)
    .write(COUNTS)
)
