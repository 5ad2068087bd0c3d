"""Run seeds: `python -m tests.simulation.run --seeds 10000 [--start N] [--first] [--jobs 2]`, or one: `--seed N --verbose`."""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import Pool

from tests.simulation.families import Family, family_of
from tests.simulation.simulate import Verdict, quiet, simulate

PROGRESS_EVERY_S = 5.0


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to run")
    parser.add_argument("--start", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--family", default="plain", choices=[each.name.lower() for each in Family], help="what kind of seeds"
    )
    parser.add_argument("--seed", type=int, help="run this one alone")
    parser.add_argument("--verbose", action="store_true", help="print everything that happens (one seed)")
    parser.add_argument("--first", action="store_true", help="stop at the first failure")
    parser.add_argument("--jobs", type=int, default=1, help="processes to use")
    options = parser.parse_args()
    if options.seed is not None:
        return run_one(options.seed, verbose=options.verbose)
    start = options.start + Family[options.family.upper()]
    seeds = range(start, start + options.seeds)
    if {family_of(start), family_of(start + options.seeds - 1)} != {Family[options.family.upper()]}:
        parser.error(
            f"--start is counted from the first seed of the family: --family {options.family} --start 0"
        )
    return run_many(seeds, jobs=options.jobs, first=options.first)


def run_one(seed: int, *, verbose: bool) -> int:
    """One seed, to the letter."""
    with quiet(verbose=verbose):
        verdict = simulate(seed, verbose=verbose)
    for problem in verdict.problems:
        print(f"seed {seed}: {problem}")
    print(
        f"seed {seed}: trace {verdict.trace:x}, {verdict.steps} steps, {verdict.virtual_s:.1f} s of virtual time, "
        f"{len(verdict.problems)} problems"
    )
    return 1 if verdict.problems else 0


def run_many(seeds: range, *, jobs: int, first: bool) -> int:
    """Many seeds; every failure with the command that brings it back."""
    started = shown = time.monotonic()
    done = failed = 0
    virtual_s = 0.0
    faults: Counter[str] = Counter()
    for verdict in verdicts(seeds, jobs):
        done += 1
        virtual_s += verdict.virtual_s
        faults.update(verdict.faults)
        if verdict.problems:
            failed += 1
            print(f"FAILED seed {verdict.seed}: {verdict.problems[0][:600]}")
            print(f"  replay: python -m tests.simulation.run --seed {verdict.seed} --verbose", flush=True)
            if first:
                break
        now = time.monotonic()
        if now - shown > PROGRESS_EVERY_S:
            shown = now
            print(
                f"{done}/{len(seeds)} seeds, {done / (now - started):.1f}/s, {failed} failed", file=sys.stderr
            )
    took_s = time.monotonic() - started
    print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(faults.items())))
    print(
        f"{done} seeds in {took_s:.1f} s ({done / took_s:.1f}/s), {virtual_s / 3600:.2f} hours of virtual time, "
        f"{failed} failed"
    )
    return 1 if failed else 0


def verdicts(seeds: Iterable[int], jobs: int) -> Iterator[Verdict]:
    """The verdict of each seed, as it comes."""
    if jobs <= 1:
        with quiet():
            for seed in seeds:
                yield simulate(seed)
        return
    with Pool(jobs) as pool:
        yield from pool.imap_unordered(_quiet_simulate, seeds, chunksize=8)


def _quiet_simulate(seed: int) -> Verdict:
    with quiet():
        return simulate(seed)


if __name__ == "__main__":
    sys.exit(main())
