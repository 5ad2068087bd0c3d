"""From runs to figures: medians with their spread, ratios to the raw copy of the same run, one JSON line."""

import json
import os
import platform
import statistics
import time
from collections import defaultdict

from rich.console import Console
from rich.table import Table

from tests.benchmarks.against import BEFORE
from tests.benchmarks.cases import Figures
from tests.benchmarks.latency import Latency

COPY = "copy"
WIDTH = 110
LATENCY_FIELDS = ("p50_ms", "p99_ms", "cpu_us", "broker_us", "input_p99_ms")


class Results:
    """All runs of all cases."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Figures]] = {}
        self.latencies: dict[str, list[Latency]] = {}
        self.failures: dict[str, int] = defaultdict(int)

    def add(self, name: str, figures: Figures | Latency) -> None:
        if isinstance(figures, Latency):
            self.latencies.setdefault(name, []).append(figures)
        else:
            self.runs.setdefault(name, []).append(figures)

    def fail(self, name: str) -> None:
        self.failures[name] += 1


def line(figures: Figures | Latency) -> str:
    """A run in one line."""
    if isinstance(figures, Latency):
        return (
            f"p50 {figures.p50_ms:.0f} ms  p99 {figures.p99_ms:.0f} ms  cpu {figures.cpu_us:.0f} us"
            f"  broker {_shown(figures.broker_us)} us  input p99 {figures.input_p99_ms:.0f} ms"
        )
    return (
        f"{figures.cpu_us:8.2f} us  broker {_shown(figures.broker_us)} us"
        f"  {figures.records_per_s / 1000:.0f} k records/s"
    )


def finish(results: Results) -> int:
    """Print the table and, as the last line, the JSON object; returns the exit code."""
    console = Console(width=WIDTH, highlight=False)
    console.print(_table(results))
    load = " ".join(f"{each:.1f}" for each in os.getloadavg())
    console.print(
        f"{os.cpu_count()} cores, {platform.platform()}, Python {platform.python_version()}, load {load}"
    )
    for name, count in results.failures.items():
        console.print(f"[bold red]{name}: {count} failed or wrong runs")
    print(json.dumps(_flat(results)))
    return 1 if results.failures else 0


def _table(results: Results) -> Table:
    table = Table(title="CPU microseconds per record, median (min - max)")
    for column in ("case", "runs", "client us", "broker us", "x copy", "x before", "k records/s"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, runs in results.runs.items():
        ratio, before = _ratio(results, name, COPY), _ratio(results, name, f"{BEFORE}{name}")
        table.add_row(
            name,
            str(len(runs)),
            _spread([each.cpu_us for each in runs]),
            _spread([each.broker_us for each in runs if each.broker_us is not None]),
            f"{ratio:.2f}" if ratio else "-",
            f"{before:.2f}" if before else "-",
            f"{statistics.median(each.records_per_s for each in runs) / 1000:.0f}",
        )
    for name, latencies in results.latencies.items():
        table.add_section()
        for field in LATENCY_FIELDS:
            found = [getattr(each, field) for each in latencies if getattr(each, field) is not None]
            table.add_row(f"{name} {field}", str(len(latencies)), _spread(found))
    return table


def _flat(results: Results) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, runs in results.runs.items():
        _put(flat, f"{name}_us", [each.cpu_us for each in runs])
        _put(flat, f"{name}_broker_us", [each.broker_us for each in runs if each.broker_us is not None])
        if name != COPY and (ratio := _ratio(results, name, COPY)):
            flat[f"{name}_per_copy"] = round(ratio, 3)
        if ratio := _ratio(results, name, f"{BEFORE}{name}"):
            flat[f"{name}_per_before"] = round(ratio, 3)
    for name, latencies in results.latencies.items():
        for field in LATENCY_FIELDS:
            found = [getattr(each, field) for each in latencies]
            _put(flat, f"{name}_{field}", [each for each in found if each is not None])
    for name in results.failures:
        flat[f"{name}_failed"] = results.failures[name]
    flat["load"] = round(os.getloadavg()[0], 2)
    flat["at"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    return flat


def _put(flat: dict[str, object], name: str, figures: list[float]) -> None:
    if figures:
        flat[name] = round(statistics.median(figures), 3)
        flat[f"{name}_min"], flat[f"{name}_max"] = round(min(figures), 3), round(max(figures), 3)


def _ratio(results: Results, name: str, other: str) -> float | None:
    """Of medians; None if this run has nothing of that name to compare with."""
    others = results.runs.get(other)
    if not others:
        return None
    mine = statistics.median(each.cpu_us for each in results.runs[name])
    return mine / statistics.median(each.cpu_us for each in others)


def _spread(figures: list[float]) -> str:
    if not figures:
        return "-"
    return f"{statistics.median(figures):.2f} ({min(figures):.2f} - {max(figures):.2f})"


def _shown(figure: float | None) -> str:
    return "-" if figure is None else f"{figure:.2f}"
