"""What the audience sees: a live picture on a terminal, a plain line every few seconds elsewhere."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from services.page_views.demo_audit import Audit
from services.page_views.pipeline import PageCount, PageView, is_human

PAGES_SHOWN = 6
NAME_WIDTH = 15
BAR_WIDTH = 59
SPARK_WIDTH = 48
SPARKS = "▁▂▃▄▅▆▇█"
# A rate is that of the last seconds: calm enough to read, quick enough to show a crash.
RATE_WINDOW_S = 2.0

_decode_view = msgspec.json.Decoder(PageView).decode
_decode_count = msgspec.json.Decoder(PageCount).decode


@dataclass(frozen=True)
class WorkerSeen:
    """One worker as it is now: its number, what names its present life, and how many lives it had before."""

    number: int
    life: str | None
    restarts: int = 0


class Tally:
    """What a reader of both topics knows so far."""

    def __init__(self, rate: float, seconds: float) -> None:
        self.sent = self.bots = self.counted = 0
        self.latest: Counter[str] = Counter()
        self._bucket_s = max(seconds / SPARK_WIDTH, 0.25)
        # The expected rate stands at half the height: room for the dip after a crash, and for the burst after it.
        self._spark_top = max(1.0, 2 * rate * self._bucket_s)
        self._sent_by_bucket: Counter[int] = Counter()
        self._counted_by_bucket: Counter[int] = Counter()
        self._recent: deque[tuple[float, int, int]] = deque([(0.0, 0, 0)])

    @property
    def behind(self) -> int:
        """Views by people that are not counted yet."""
        return self.sent - self.bots - self.counted

    def add(self, at_s: float, views: Iterable[bytes], counts: Iterable[bytes]) -> None:
        """Take in what was read since the last time."""
        bucket = int(at_s / self._bucket_s)
        sent, counted = self.sent, self.counted
        for value in views:
            self.sent += 1
            self.bots += not is_human(_decode_view(value))
        for value in counts:
            count = _decode_count(value)
            self.counted += 1
            self.latest[count.page] = count.views
        self._sent_by_bucket[bucket] += self.sent - sent
        self._counted_by_bucket[bucket] += self.counted - counted
        self._recent.append((at_s, self.sent, self.counted))
        while len(self._recent) > 2 and at_s - self._recent[1][0] >= RATE_WINDOW_S:
            self._recent.popleft()

    def rates(self) -> tuple[float, float]:
        """Records sent and counted per second, lately."""
        (then_s, sent, counted), (now_s, sent_now, counted_now) = self._recent[0], self._recent[-1]
        passed_s = max(now_s - then_s, 0.001)
        return (sent_now - sent) / passed_s, (counted_now - counted) / passed_s

    def sparks(self) -> tuple[str, str]:
        """Both rates over time, on one scale; the last bucket is left out while it fills."""
        last = max(self._sent_by_bucket, default=0)
        return self._spark(self._sent_by_bucket, last), self._spark(self._counted_by_bucket, last)

    def _spark(self, buckets: Counter[int], last: int) -> str:
        heights = (round(buckets[at] / self._spark_top * len(SPARKS)) for at in range(last))
        return "".join(SPARKS[min(height, len(SPARKS) - 1)] for height in heights)


class Screen:
    """Shows the tally, the workers and what happened; knows whether anybody watches a terminal."""

    def __init__(self, console: Console, line_every_s: float) -> None:
        self.console = console
        self._facts: list[tuple[str, str]] = []
        self._events: list[Text] = []
        self._line_every_s = line_every_s
        self._next_line_s = line_every_s
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self) -> None:
        """The clock starts anew."""
        self._next_line_s = self._line_every_s

    def fact(self, name: str, text: str) -> None:
        """Say something that stays true."""
        self._facts.append((name, text))
        if self._live is None:
            self.console.print(f"{name:<10} {text}", soft_wrap=True)

    def event(self, at_s: float, mark: str, text: str, style: str) -> None:
        """Say what has just happened."""
        line = Text.assemble((clock(at_s), "dim"), "  ", (mark, style), " ", (text, style))
        self._events.append(line)
        if self._live is None:
            self.console.print(line, soft_wrap=True)

    def show(
        self, at_s: float, tally: Tally, workers: Sequence[WorkerSeen], pages: int = PAGES_SHOWN
    ) -> None:
        """Draw the present moment."""
        if self._live is not None:
            self._live.update(self._picture(at_s, tally, workers, pages), refresh=True)
        elif tally.sent and at_s >= self._next_line_s:
            self._next_line_s += self._line_every_s
            self.console.print(_line(at_s, tally), soft_wrap=True)

    def _picture(
        self, at_s: float, tally: Tally, workers: Sequence[WorkerSeen], pages: int
    ) -> RenderableType:
        title = Table.grid(expand=True)
        title.add_column()
        title.add_column(justify="right")
        title.add_row(
            Text.assemble(("streamkit", "bold cyan"), "  page views, counted exactly once"),
            Text(clock(at_s), style="dim"),
        )
        facts = Table.grid(padding=(0, 2))
        facts.add_column(style="dim", width=8)
        facts.add_column(overflow="ellipsis", no_wrap=True)
        for name, text in self._facts:
            facts.add_row(name, text)
        facts.add_row("workers", _workers(workers))
        return Group(
            title,
            "",
            facts,
            "",
            _flow(tally),
            "",
            _top_pages(tally, pages),
            "",
            *(self._events or [Text("the workers are starting", style="dim")]),
        )


def clock(at_s: float) -> str:
    """Minutes and seconds."""
    return f"{int(at_s) // 60:02}:{int(at_s) % 60:02}"


def verdict(found: Audit, acknowledged: int, reader: str) -> Group:
    """The audit as a few lines with ticks and crosses."""
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(justify="right")
    table.add_column(style="dim")
    whole = found.records_in == acknowledged
    even = found.records_out == found.expected
    rows = [
        (whole, found.records_in, f"records in, of {acknowledged:,} that were acknowledged to the load"),
        (even, found.records_out, f"counted, of {found.expected:,} by people; {found.bots:,} were by bots"),
        (not found.lost, found.lost, "lost"),
        (not found.twice, found.twice, "counted twice"),
        (not found.out_of_order, found.out_of_order, "running counts that are not the one before + 1"),
    ]
    for good, number, what in rows:
        mark, style = ("✓", "bold green") if good else ("✗", "bold red")
        table.add_row(
            Text(mark, style=style), Text(f"{number:,}", style="bold" if good else "bold red"), what
        )
    return Group(Text.assemble(("audit", "bold"), (f"  {reader}", "dim")), table)


def _workers(workers: Sequence[WorkerSeen]) -> Text:
    text = Text()
    for worker in workers:
        mark, style = ("●", "green") if worker.life is not None else ("✗", "bold red")
        text.append(f"{mark} ", style=style).append(f"{worker.number}")
        text.append(f"  {worker.life or 'dead'}", style="default" if worker.life else "bold red")
        if worker.restarts and worker.life:
            text.append(", started again", style="yellow")
        text.append("     ")
    return text


def _flow(tally: Tally) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", width=NAME_WIDTH)
    table.add_column(justify="right", width=9)
    table.add_column(justify="right", width=9)
    table.add_column()
    (sent_rate, counted_rate), (sent_sparks, counted_sparks) = tally.rates(), tally.sparks()
    table.add_row("sent", f"{tally.sent:,}", f"{sent_rate:,.0f}/s", Text(sent_sparks, style="blue"))
    table.add_row(
        "counted", f"{tally.counted:,}", f"{counted_rate:,.0f}/s", Text(counted_sparks, style="green")
    )
    table.add_row("behind", f"{max(tally.behind, 0):,}", "", Text(f"{tally.bots:,} by bots", style="dim"))
    return table


def _top_pages(tally: Tally, pages: int) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(width=NAME_WIDTH, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", width=9)
    table.add_column()
    top = tally.latest.most_common(pages)
    for page, views in top:
        width = max(1, views * BAR_WIDTH // max(1, top[0][1]))
        table.add_row(page, f"{views:,}", Text("█" * width, style="cyan"))
    for _ in range(pages - len(top)):
        table.add_row("", "", "")
    return table


def _line(at_s: float, tally: Tally) -> str:
    sent_rate, counted_rate = tally.rates()
    top = ", ".join(f"{page} {views:,}" for page, views in tally.latest.most_common(3))
    return (
        f"{clock(at_s)}  sent {tally.sent:,} ({sent_rate:,.0f}/s)  counted {tally.counted:,} "
        f"({counted_rate:,.0f}/s)  behind {max(tally.behind, 0):,}  top: {top}"
    )
