"""Run one command that must not outlive its owner, even if the owner is killed with SIGKILL.

`node.py` runs this file as a process of its own, between the owner and the JVM. Its standard input is a pipe
from the owner: the end of that pipe means that the owner is gone, whatever ended it. Only the standard library
is used, and no module of streamkit, so that it starts in a few milliseconds.

Orders on the pipe: `t` asks the command to end and `k` kills it, and both wait for more; `q` kills it and leaves its
folder in place; the end of the pipe kills it and discards the folder, if it is told one. On standard output: the command's
process id, then the end of the stream once the command is gone.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

TERMINATE = b"t"
KILL = b"k"
QUIT = b"q"
PARENT_CHECK_S = 1.0  # a forked child of the owner may keep the pipe open after the owner's death
PR_SET_PDEATHSIG = 1  # from Linux's sys/prctl.h


def main(discard: Path | None, command: list[str]) -> None:
    """Run the command until it ends, an order comes, or the owner is gone."""
    owner = os.getppid()
    child = subprocess.Popen(  # noqa: S603  (the command comes from node.py)
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        preexec_fn=_die_with_parent,  # noqa: PLW1509  (no thread runs yet)
    )
    os.write(1, b"%d\n" % child.pid)
    threading.Thread(target=_tell_the_end, args=(child,), daemon=True).start()
    order = _next_order(owner)
    while order in (TERMINATE, KILL):
        child.terminate() if order == TERMINATE else child.kill()
        order = _next_order(owner)
    child.kill()
    child.wait()
    if order != QUIT and discard is not None:
        shutil.rmtree(discard, ignore_errors=True)
        with contextlib.suppress(OSError):  # another node, or a log, may still be in it
            discard.parent.rmdir()


def _next_order(owner: int) -> bytes:
    """Wait for one order; empty when the owner is gone."""
    while os.getppid() == owner:
        readable, _, _ = select.select([0], [], [], PARENT_CHECK_S)
        if readable:
            return os.read(0, 1)
    return b""


def _tell_the_end(child: subprocess.Popen[bytes]) -> None:
    """Close standard output when the command ends: the owner sees it without a process id of its own."""
    child.wait()
    os.close(1)


def _die_with_parent() -> None:
    """Ask Linux to kill the command should this process be killed; elsewhere the pipe is all there is."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if sys.argv[1] else None, sys.argv[2:])
