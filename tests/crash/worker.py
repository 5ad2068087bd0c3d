"""One worker process of a run: `python -m tests.crash.worker PIPELINE RUN BROKERS STATE_DIR`."""

import sys

import uvloop

from streamkit.config import Settings
from streamkit.errors import StreamkitError
from streamkit.runtime.processes import exit_code
from streamkit.runtime.worker import run_worker
from tests.crash.hours import hours
from tests.crash.tally import next_tally, tally

if __name__ == "__main__":
    name, run, brokers, state_dir = sys.argv[1:]
    pipeline = {"tally": tally, "next_tally": next_tally, "hours": hours}[name](run)
    # The shortest session that a broker allows by default: zombies are found out sooner.
    settings = Settings(brokers=brokers, state_dir=state_dir, session_timeout_s=6.0, request_timeout_s=5.0)
    try:
        uvloop.run(run_worker(pipeline.plan(), settings))
    except StreamkitError as error:
        print(error.render(), file=sys.stderr)
        sys.exit(exit_code(error))
