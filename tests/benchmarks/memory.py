"""What the state of a worker takes in memory, against its budget: a hundred tasks, five million keys, RocksDB.

    make bench ONLY=memory
    python -m tests.benchmarks.memory --mib 512 --tasks 100 --keys 5000000

Every key is counted twice: written once in order, then again in random order, so that caches, write buffers and block
cache fill up. Without a broker: state, its disk thread and its bounds are the worker's own, all else is left out. What the
process takes before the first key is not counted; everything afterwards is, RocksDB and Python's own overhead included.
"""

import argparse
import asyncio
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

from streamkit.config import Settings
from streamkit.runtime.disk import DiskThread
from streamkit.runtime.host import files_for_state
from streamkit.runtime.persist import Persistence, Storage
from streamkit.state.budget import MemoryBudget
from streamkit.state.rocks import RocksStores
from streamkit.state.spec import StoreSpec
from streamkit.state.task_state import TaskState

MIB = 1024 * 1024
BUDGET_MIB = 512
TASKS = 100
KEYS = 5_000_000
COUNTS = StoreSpec("counts", "value", int)
# Keys of a task in one commit, and tasks in it: about what a worker commits ten times a second.
KEYS_PER_COMMIT = 500
TASKS_PER_COMMIT = 20


class Worker:
    """The state of a worker's tasks, without records."""

    def __init__(self, folder: Path, bytes_max: int, tasks: int) -> None:
        budget = MemoryBudget(bytes_max)
        files = files_for_state()
        stores = RocksStores(folder, budget.block_cache_bytes, budget.write_buffer_bytes, files)
        self.persistence = Persistence(Storage(stores, DiskThread(), budget), Settings())
        self.states = [TaskState(stores.open(f"counts-{number}"), [COUNTS]) for number in range(tasks)]

    async def count(self, numbers: dict[int, range | list[int]]) -> None:
        """Count these keys, by task, and commit."""
        for task, keys in numbers.items():
            state = self.states[task]
            cells = state.cells(COUNTS)
            for key in keys:
                name = b"user-%09d" % key
                cells.put(name, (cells.get(name) or 1000) + 1)
            state.committed(state.freeze(), state.changelog_offset + len(keys))
        self.persistence.keep_within_memory(self.states, [])
        self.persistence.follow(lambda: self.states)
        await asyncio.sleep(0)
        while self.persistence.is_full:
            await self.persistence.wait_for_room(0.1)
            self.persistence.follow(lambda: self.states)

    async def end(self) -> None:
        """Close everything."""
        for state in self.states:
            self.persistence.close(state)
        await self.persistence.end()


async def fill(worker: Worker, tasks: int, keys: int) -> None:
    """Every key once in order, then once at random."""
    per_task = keys // tasks
    chance = random.Random(1)
    for start in range(0, per_task, KEYS_PER_COMMIT):
        for first in range(0, tasks, TASKS_PER_COMMIT):
            chosen = range(first, min(tasks, first + TASKS_PER_COMMIT))
            await worker.count(
                {task: range(start, min(per_task, start + KEYS_PER_COMMIT)) for task in chosen}
            )
    for _ in range(0, per_task, KEYS_PER_COMMIT):
        for first in range(0, tasks, TASKS_PER_COMMIT):
            chosen = range(first, min(tasks, first + TASKS_PER_COMMIT))
            await worker.count(
                {task: [chance.randrange(per_task) for _ in range(KEYS_PER_COMMIT)] for task in chosen}
            )


def run() -> int:
    """The usual measurement; returns the exit code."""
    return 0 if asyncio.run(measure(BUDGET_MIB * MIB, TASKS, KEYS)) else 1


async def measure(bytes_max: int, tasks: int, keys: int) -> bool:
    """Print what was taken; returns whether it is within the budget."""
    with tempfile.TemporaryDirectory(prefix="streamkit-memory-") as folder:
        before = peak_bytes()
        started = time.monotonic()
        worker = Worker(Path(folder), bytes_max, tasks)
        opened = peak_bytes()
        await fill(worker, tasks, keys)
        took_s = time.monotonic() - started
        peak = peak_bytes()
        files = open_files()
        await worker.end()
    print(
        f"memory: {tasks} tasks, {keys:,} keys, budget {bytes_max / MIB:.0f} MiB: at most "
        f"{(peak - before) / MIB:.0f} MiB above the {before / MIB:.0f} MiB of the bare process, "
        f"{(opened - before) / MIB:.0f} of them when all was open and empty; {files} files open; {took_s:.0f} s"
    )
    if peak - before > bytes_max:
        print("memory: the budget was not kept", file=sys.stderr)
    return peak - before <= bytes_max


def open_files() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def peak_bytes() -> int:
    """The most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mib", type=int, default=BUDGET_MIB, help="the budget")
    parser.add_argument("--tasks", type=int, default=TASKS)
    parser.add_argument("--keys", type=int, default=KEYS)
    wishes = parser.parse_args()
    return 0 if asyncio.run(measure(wishes.mib * MIB, wishes.tasks, wishes.keys)) else 1


if __name__ == "__main__":
    sys.exit(main())
