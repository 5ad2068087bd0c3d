"""Another checkout of this project, measured in the same run: what a change costs.

    git worktree add ../before main~20 && make -C ../before setup
    make bench AGAINST=../before

Every case of ours runs twice in a round, once with each code, and who goes first alternates from round to round. The
other checkout runs its own `tests/benchmarks/worker.py` under its own interpreter; this one starts, watches and judges both.
"""

from collections.abc import Iterable
from pathlib import Path

from tests.benchmarks.cases import Case, Place, python_of
from tests.benchmarks.child import Child
from tests.benchmarks.latency import Start
from tests.benchmarks.open_loop import Load

BEFORE = "before_"


def other_tree(named: str) -> Path:
    """The checkout of this name, if it is ready to run."""
    tree = Path(named).resolve()
    if not (tree / "tests" / "benchmarks" / "worker.py").is_file():
        raise SystemExit(
            f"error: {tree} is no checkout of this project: it has no tests/benchmarks/worker.py"
        )
    if not python_of(tree).exists():
        raise SystemExit(f"error: {tree} has no .venv yet: run `make -C {tree} setup`")
    return tree


def twin_cases(cases: Iterable[Case], tree: Path) -> list[Case]:
    """Every case of ours, followed by the same with the other code."""
    twins = [(case, case._replace(name=f"{BEFORE}{case.name}", tree=tree)) for case in cases]
    return [each for pair in twins for each in pair]


def twin_latencies(latencies: dict[str, Start], tree: Path) -> dict[str, Start]:
    """As `twin_cases`."""
    pairs = [
        ((name, start), (f"{BEFORE}{name}", _started_in(tree, start))) for name, start in latencies.items()
    ]
    return dict(each for pair in pairs for each in pair)


def _started_in(tree: Path, start: Start) -> Start:
    def started(place: Place, load: Load) -> Child:
        return start(place._replace(tree=tree), load)

    return started
