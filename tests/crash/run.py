"""`make chaos KILLS=200`: the same faults, mixed at random and for longer."""

import argparse
import random
import shutil
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


def keep(broker: Broker) -> None:
    """Copy what the broker has on disk before it goes: whoever asks what happened needs its logs, in both senses."""
    if broker.log_folder is not None:
        kept = Path(tempfile.mkdtemp(prefix="streamkit-chaos-"))
        broker.kill()
        shutil.copytree(broker.log_folder, kept, dirs_exist_ok=True)
        print(f"\nthe broker's data and log are kept in {kept}", file=sys.stderr)


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
        try:
            done = campaign(run, broker, arguments.kills)
            run.finish()
        except BaseException:
            keep(broker)
            raise
    print(file=sys.stderr)
    print(f"survived {done} in {time.monotonic() - started:.0f} s:")
    print(f"{run.load.total} records in, {run.audit.total} out, lost 0, twice 0, every running count right")


if __name__ == "__main__":
    main()
