"""A streamkit worker as it is deployed, with one addition: it says when the first record arrives.

Usage: python -m tests.benchmarks.worker PIPELINE NAME IN OUT GUARANTEE STATE_DIR [PROFILE_FILE]
"""

import cProfile
import logging
import sys
from typing import Any

import structlog
import uvloop

from streamkit.config import Settings
from streamkit.runtime.worker import run_worker
from streamkit.task.ingest import Intake
from tests.benchmarks.clock import mark
from tests.benchmarks.pipelines import PIPELINES


def say_first() -> None:
    """Mark the first slice of records, then step aside: nothing is left in the path that is measured."""
    run_slice = Intake.run_slice

    def first_slice(*arguments: Any) -> Any:
        Intake.run_slice = run_slice
        mark("first")
        return run_slice(*arguments)

    Intake.run_slice = first_slice


def main(pipeline: str, name: str, source: str, target: str, guarantee: str, state_dir: str) -> None:
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    plan = PIPELINES[pipeline](name, source, target).plan()
    say_first()
    uvloop.run(run_worker(plan, Settings.load(guarantee=guarantee, state_dir=state_dir)))


if __name__ == "__main__":
    if len(sys.argv) > 7:
        profile = cProfile.Profile()
        profile.runcall(main, *sys.argv[1:7])
        profile.dump_stats(sys.argv[7])
    else:
        main(*sys.argv[1:7])
