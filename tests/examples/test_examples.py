"""Every example runs by itself and prints what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

from streamkit.graph.pipeline import Pipeline

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES_MAX = 59

PRINTED = {
    "01_hello": ["hello, ann", "hello, bob"],
    "02_count": ["cart: 1", "home: 1", "home: 2", "home: 3"],
    "03_operator": ["ann has spent 120"],
    "04_agent": ["attic: 20.0", "attic: 21.2"],
    "05_union_and_fork": ["large: [('bob', 25000)]", "revenue: {'ann': 2500, 'bob': 25000}"],
    "06_dead_letters": [
        "amounts: [1250, 300]",
        """b'{"amount":"a lot"}' failed in b'in_cents': b"ValueError: could not convert string to float: 'a lot'\"""",
        "b'not JSON at all' failed in b'decode': b'DecodeError: JSON is malformed: invalid character (byte 4)'",
    ],
    "07_aggregate": ["mean: 20.0 longest: 30"],
    "08_map_state": ["ann buys {'jam': 1, 'tea': 3}", "ann buys {'bread': 1}"],
    "09_testing": ["2 tests passed"],
    "10_new_version": [
        "v1: 500 cents",
        "v2: 600 cents, 1 sales since v2",
        "refused: "
        'Store "total" moved from stage "report_by_key" to stage "another_by_key"; '
        "its state stays in the old changelog.",
    ],
    "11_tumbling": ["00:00 cart: 1", "00:00 home: 2"],
    "12_hopping": [
        "the minute until 01:00: 900 ms",
        "the minute until 01:20: 900 ms",
        "the minute until 01:40: 900 ms",
        "the minute until 02:00: 30 ms",
    ],
    "13_sliding": ["card 4711: 650 by 61000 ms"],
    "14_session": ["ann stayed 50 s for 3 clicks", "bob stayed 0 s for 1 clicks"],
    "15_everything": ["so far: 10.0", "so far: 15.0"],
    "16_counting": [
        "of every three: [20.0, 50.0]",
        "of the last three: [10.0, 15.0, 20.0, 30.0, 40.0, 50.0]",
    ],
    "17_cumulating": ["by 01 06:00: 10", "by 01 12:00: 30", "by 01 18:00: 30", "by 02 00:00: 35"],
    "18_late_data": ["results: [(0, 1), (0, 2), (10000, 1)]", "too late: [5000]"],
    "19_custom_trigger": ["early: [1400]", "final: [2100]"],
    "20_evictor": ["metres per second: [20, 45, 60, 70]"],
    "21_side_output": ["totals: [600, 2000, 1300]", "alerts: [('4711', 1300)]"],
    "22_list_state": ["p1: Bremen -> Kassel -> Ulm"],
}


def test_every_example_is_here_and_they_are_numbered() -> None:
    assert [each.stem for each in EXAMPLES] == list(PRINTED)
    assert [int(each.stem.split("_")[0]) for each in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.stem)
def test_it_prints_what_it_promises(example: Path) -> None:
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    promised = PRINTED[example.stem]
    # Logs may stand in between, on either stream.
    assert [line for line in done.stdout.splitlines() if line in promised] == promised, done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda each: each.stem)
def test_it_is_short_and_has_a_pipeline_that_can_be_planned(example: Path) -> None:
    assert len(example.read_text().splitlines()) <= LINES_MAX
    names: dict[str, object] = {"__name__": "example"}
    exec(compile(example.read_text(), example, "exec"), names)
    pipelines = [each for each in names.values() if isinstance(each, Pipeline)]
    assert pipelines
    assert all(each.plan().stages for each in pipelines)
