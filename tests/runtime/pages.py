"""A small pipeline that the runtime's tests share."""

import msgspec

import streamkit as sk


class View(msgspec.Struct):
    page: str
    user: str = "ann"


class Count(msgspec.Struct):
    page: str
    views: int


VIEWS = sk.topic("views", View)
COUNTS = sk.topic("counts", Count)


def page_of(view: View) -> str:
    return view.page


def as_count(page: str, views: int) -> Count:
    return Count(page, views)


def counting(name: str = "pages", **options: object) -> sk.Pipeline:
    """read -> key_by -> count -> write, in two stages."""
    pipeline = sk.pipeline(name, **options)  # type: ignore[arg-type]
    pipeline.read(VIEWS).key_by(page_of).count(name="views_per_page").map_keyed(as_count).write(COUNTS)
    return pipeline


def check_running_counts(counts: list[Count]) -> dict[str, int]:
    """Every output of a page is one more than the one before; returns the last of each."""
    last: dict[str, int] = {}
    for count in counts:
        assert count.views == last.get(count.page, 0) + 1, f"{count} came after {last.get(count.page, 0)}"
        last[count.page] = count.views
    return last
