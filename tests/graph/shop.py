"""The topics, types and functions that the graph tests build pipelines of."""

from typing import Any

import msgspec

from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.model.topic import topic
from streamkit.operators.process import Context, Operator
from streamkit.state.views import value


class Click(msgspec.Struct):
    user: str
    page: str
    number: int = 0


class PageCount(msgspec.Struct):
    page: str
    count: int


class Dedup(Operator[str, Click, Click]):
    seen = value(bool, False)

    def on_record(self, value: Click, ctx: Context[str, Click]) -> None:
        if not self.seen.get():
            self.seen.set(True)
            ctx.emit(value)


clicks = topic("clicks", Click)
taps = topic("taps", Click)
counts = topic("page-counts", int)
totals = topic("page-totals", PageCount)
unique = topic("unique", Click)


def is_human(click: Click) -> bool:
    return click.user != "bot"


def by_page(click: Click) -> str:
    return click.page


def by_number(click: Click) -> int:
    return click.number


def to_total(page: str, count: int) -> PageCount:
    return PageCount(page, count)


def top_pages(**options: Any) -> Pipeline:
    """The pipeline of the design page, without its window."""
    pages = pipeline("top-pages", **options)
    counted = pages.read(clicks).filter(is_human).key_by(by_page).count(name="per_page")
    counted.map_keyed(to_total).write(totals)
    return pages
