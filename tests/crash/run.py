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


def burst(run: Rig, broker: Broker, dice: random.Random) -> None:
    """A worker and the broker die within a second of each other: what a broker forgets, it forgets then."""
    if dice.random() < 0.5:
        run.kill()
        time.sleep(dice.choice((0.0, 0.01, 0.1, 1.0)) * dice.random())
        broker.kill()
        broker.restart()
    else:
        broker.kill()
        time.sleep(dice.choice((0.0, 0.01, 0.1, 1.0)) * dice.random())
        run.kill()
        broker.restart()
    run.watch(dice.uniform(0.1, 3.0))


def campaign(run: Rig, broker: Broker, kills: int, burst_weight: int) -> dict[str, int]:
    """Mix faults until this many workers were killed."""
    done = dict.fromkeys(["kills", "zombies", "broker_kills", "bursts", "joins_and_leaves"], 0)
    dice = random.Random(run.run)
    while done["kills"] < kills:
        run.watch(dice.uniform(0.2, 2.0))
        match dice.choices(["kill", "zombie", "broker", "burst", "members"], [80, 6, 4, burst_weight, 10])[0]:
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
            case "burst":
                for _ in range(dice.randint(2, 5)):
                    burst(run, broker, dice)
                    done["kills"] += 1
                    done["broker_kills"] += 1
                done["bursts"] += 1
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
    parser.add_argument(
        "--burst-weight", type=int, default=6, help="how often, of about 100, the broker dies too"
    )
    arguments = parser.parse_args()
    started = time.monotonic()
    with (
        tempfile.TemporaryDirectory() as folder,
        start_broker() as broker,
        rig(broker.bootstrap, Path(folder), workers=2, rate=1000) as run,
    ):
        try:
            done = campaign(run, broker, arguments.kills, arguments.burst_weight)
            run.finish()
        except BaseException:
            keep(broker)
            raise
    print(file=sys.stderr)
    print(f"survived {done} in {time.monotonic() - started:.0f} s:")
    print(
        f"{run.load.total} records in, {run.audit.total} out, lost 0, twice 0, every running count right, nothing hangs"
    )


if __name__ == "__main__":
    main()
