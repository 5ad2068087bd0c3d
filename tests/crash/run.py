"""`make chaos KILLS=200`: the same faults, mixed at random and for longer."""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from streamkit.testing.broker import Broker, start_broker
from tests.crash.rig import Rig, rig


def campaign(run: Rig, broker: Broker, kills: int) -> dict[str, int]:
    """Mix faults until this many workers were killed."""
    done = dict.fromkeys(["kills", "zombies", "broker_kills", "joins_and_leaves"], 0)
    dice = random.Random(run.run)
    while done["kills"] < kills:
        run.watch(dice.uniform(0.2, 2.0))
        match dice.choices(["kill", "zombie", "broker", "members"], [80, 6, 4, 10])[0]:
            case "kill":
                run.kill()
                done["kills"] += 1
            case "zombie":
                index = dice.randrange(len(run.workers))
                run.freeze(index)
                run.watch(dice.uniform(0.5, 12.0))
                run.thaw(index)
                done["zombies"] += 1
            case "broker":
                broker.kill()
                broker.restart()
                done["broker_kills"] += 1
            case _:
                run.join() if len(run.workers) < 3 else run.leave(dice.randrange(len(run.workers)))
                done["joins_and_leaves"] += 1
        print(f"\r{done}  in {run.load.total}  out {run.audit.total} ", end="", file=sys.stderr, flush=True)
    return done


def main() -> None:
    """Run the campaign and print what was survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    arguments = parser.parse_args()
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker() as broker,
        rig(broker.bootstrap, Path(folder), workers=2, rate=1000) as run,
    ):
        done = campaign(run, broker, arguments.kills)
        run.finish()
    print(file=sys.stderr)
    print(f"survived {done} in {time.monotonic() - started:.0f} s:")
    print(f"{run.load.total} records in, {run.audit.total} out, lost 0, twice 0, every running count right")


if __name__ == "__main__":
    main()
