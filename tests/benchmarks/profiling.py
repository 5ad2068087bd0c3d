"""Where the time goes: one streamkit case under cProfile, the top of it printed.

cProfile makes every Python call dearer and leaves C calls as they are: believe the order, not the amounts.
"""

import pstats
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.cases import Case, measure
from tests.benchmarks.cluster import Cluster

SHOWN = 40


def run(cases: list[Case], cluster: Cluster, inputs: dict[tuple[int, int], str], records: int) -> int:
    case = next((each for each in cases if each.name != "copy" and not each.is_peer), None)
    if case is None:
        print("error: only the cases of streamkit can be profiled", file=sys.stderr)
        return 2
    size = case.records(records)
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile"
        figures = measure(case, cluster, inputs[size, case.keys], size, profile)
        print(f"{case.name}: {figures.cpu_us:.2f} us per record under cProfile, {size} records")
        pstats.Stats(str(profile)).strip_dirs().sort_stats("tottime").print_stats(SHOWN)
    return 0
