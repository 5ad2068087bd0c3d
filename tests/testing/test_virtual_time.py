"""The virtual loop: the same seed is the same run, and time passes only when everybody waits."""

import asyncio
import subprocess
import sys
import time
from random import Random

import pytest

from streamkit.testing.virtual_time import Deadlock, Livelock, VirtualLoop, in_process, run

SEEDS = range(30)


async def spin() -> None:
    while True:  # noqa: ASYNC110 - it spins on purpose
        await asyncio.sleep(0)


async def race() -> list[int]:
    """Several tasks that step over each other; the order in which they finish shows the seed's choices."""
    order: list[int] = []

    async def runner(number: int) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        order.append(number)

    async with asyncio.TaskGroup() as group:
        for number in range(6):
            group.create_task(runner(number))
    return order


async def traced() -> tuple[list[int], int, float]:
    order = await race()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    return order, loop.trace, loop.time()


def test_the_same_seed_gives_the_same_run() -> None:
    assert [run(traced(), seed) for seed in SEEDS] == [run(traced(), seed) for seed in SEEDS]


def test_other_seeds_give_other_runs() -> None:
    assert len({tuple(run(race(), seed)) for seed in SEEDS}) > 20


def test_another_process_gives_the_same_run() -> None:
    """Cancelling a TaskGroup walks over a set of tasks: their order must not hang on addresses."""
    program = """
import asyncio
from streamkit.testing.virtual_time import run
async def main():
    order = []
    async def sleeper(number):
        try:
            await asyncio.sleep(100)
        finally:
            order.append(number)
            await asyncio.sleep(0)
    async def failing():
        await asyncio.sleep(1)
        raise ValueError
    try:
        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(sleeper(number))
            group.create_task(failing())
    except* ValueError:
        pass
    return order, asyncio.get_running_loop().trace
print(run(main(), 7))
"""
    # Memory with other holes in it, so that tasks lie at other addresses.
    holes = """
import random
random.seed({seed})
blocks = [bytearray(random.randrange(100, 900)) for _ in range(3000)]
random.shuffle(blocks)
del blocks[:1500]
"""
    outputs = {
        subprocess.run(
            [sys.executable, "-c", holes.format(seed=seed) + program],
            env={"PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(outputs) == 1


def test_the_clock_jumps_over_waiting() -> None:
    async def sleep_long() -> float:
        await asyncio.sleep(1_000_000)
        return asyncio.get_running_loop().time()

    started = time.monotonic()
    assert run(sleep_long(), 0) == pytest.approx(1_000_000, abs=0.01)
    assert time.monotonic() - started < 5


def test_timers_come_in_the_order_of_their_times() -> None:
    async def sleepers() -> list[int]:
        order: list[int] = []

        async def sleeper(seconds: int) -> None:
            await asyncio.sleep(seconds)
            order.append(seconds)

        await asyncio.gather(*(sleeper(seconds) for seconds in (5, 1, 4, 2, 3)))
        return order

    assert all(run(sleepers(), seed) == [1, 2, 3, 4, 5] for seed in SEEDS)


def test_waiting_for_ever_is_a_deadlock() -> None:
    async def wait_for_ever() -> None:
        await asyncio.sleep(3)
        await asyncio.get_running_loop().create_future()

    with pytest.raises(Deadlock, match=r"at 3\.0"):
        run(wait_for_ever(), 0)


def test_a_task_that_waits_for_ever_even_when_cancelled_is_abandoned() -> None:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                continue

    with pytest.raises(Deadlock):
        run(stubborn(), 0)


def test_spinning_is_a_livelock() -> None:
    with pytest.raises(Livelock):
        run(spin(), 0, steps_max=10_000)


def test_a_main_that_cancels_all_it_finds_when_it_is_stopped_ends_as_it_was_stopped() -> None:
    async def spin_then_clear() -> None:
        try:
            await spin()
        finally:
            rest = asyncio.all_tasks() - {asyncio.current_task()}
            for task in rest:
                task.cancel()
            await asyncio.wait(rest, timeout=0.01)

    for seed in SEEDS:
        with pytest.raises(Livelock):
            run(spin_then_clear(), seed, steps_max=1_000)


def test_spinning_lets_the_clock_move() -> None:
    async def spin_until_time_out() -> None:
        async with asyncio.timeout(0.01):
            await spin()

    with pytest.raises(TimeoutError):
        run(spin_until_time_out(), 0)


def test_cancelled_timers_do_not_pile_up() -> None:
    async def set_and_cancel() -> int:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        for _ in range(1000):
            loop.call_later(100, print).cancel()
            await asyncio.sleep(0)
        return len(loop._scheduled)

    assert run(set_and_cancel(), 0) < 300


def test_an_executor_runs_here_and_now() -> None:
    async def offload() -> tuple[int, str]:
        loop = asyncio.get_running_loop()
        doubled = await loop.run_in_executor(None, lambda number: number * 2, 21)
        try:
            await asyncio.to_thread(int, "no number")
        except ValueError as error:
            return doubled, type(error).__name__
        return doubled, "nothing"

    assert run(offload(), 0) == (42, "ValueError")


def test_an_error_of_the_main_task_is_the_error_of_the_run() -> None:
    async def fail() -> None:
        await asyncio.sleep(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        run(fail(), 0)


def test_what_is_left_running_is_cancelled_at_the_end() -> None:
    ended: list[str] = []

    async def background() -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(1)
            ended.append("cleared up")

    async def main() -> str:
        task = asyncio.create_task(background())
        await asyncio.sleep(1)
        assert not task.done()
        return "done"

    assert run(main(), 0) == "done"
    assert ended == ["cleared up"]


def test_asyncios_own_tools_work() -> None:
    async def tools(seed: int) -> list[int]:
        random, queue, lock = Random(seed), asyncio.Queue[int](maxsize=2), asyncio.Lock()
        seen: list[int] = []

        async def put(number: int) -> None:
            async with lock:
                await asyncio.sleep(random.random())
                await queue.put(number)

        async def get() -> None:
            seen.extend([await asyncio.wait_for(queue.get(), timeout=60) for _ in range(10)])

        await asyncio.gather(get(), *(put(number) for number in range(10)))
        return sorted(seen)

    assert all(run(tools(seed), seed) == list(range(10)) for seed in SEEDS)


def test_work_holds_up_its_own_process_and_nobody_else() -> None:
    seen: list[tuple[str, float]] = []

    async def tick(name: str) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(3):
            await asyncio.sleep(1)
            seen.append((name, round(loop.time(), 1)))

    async def blocked() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await asyncio.sleep(0.5)
        loop.spend(2.0)
        assert loop.time() >= 2.5

    async def main() -> None:
        loop = asyncio.get_running_loop()
        mine, other = in_process("mine"), in_process("other")
        work = [
            loop.create_task(blocked(), context=mine),
            loop.create_task(tick("mine"), context=mine),
            loop.create_task(tick("other"), context=other),
        ]
        await asyncio.wait(work)
        for each in work:
            each.result()

    for seed in SEEDS:
        seen.clear()
        run(main(), seed)
        assert [at for name, at in seen if name == "other"] == [1.0, 2.0, 3.0]
        assert [at for name, at in seen if name == "mine"] == [2.5, 3.5, 4.5]
