"""Bring the peers onto this machine, once: their own virtual environment, and Kafka Streams by Maven.

They never share our environment: their dependencies contradict each other's and ours.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
POM, SOURCE = HERE / "pom.xml", HERE / "KafkaStreamsCount.java"
REQUIREMENTS = HERE / "requirements.txt"
LIMIT_S = 900.0

Say = Callable[[str], None]


def cache() -> Path:
    root = os.environ.get("STREAMKIT_CACHE")
    return Path(root) if root else Path.home() / ".cache" / "streamkit"


def python() -> Path:
    """The interpreter that knows Quix, Faust and Bytewax."""
    return cache() / "bench-venv" / "bin" / "python"


def java() -> list[str]:
    """How to start the Kafka Streams peer; its arguments follow."""
    folder = cache() / "bench-streams"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    return ["java", "-Xmx1g", quiet, "-cp", f"{folder / 'jars'}/*:{folder / 'classes'}", SOURCE.stem]


def install_python(say: Say) -> None:
    """Make the environment again whenever the requirements have changed."""
    folder = cache() / "bench-venv"
    done, wanted = folder / "installed.txt", REQUIREMENTS.read_text()
    if done.is_file() and done.read_text() == wanted:
        return
    say(f"installing Quix, Faust and Bytewax into {folder} (once)")
    _run([sys.executable, "-m", "venv", "--clear", str(folder)])
    _run([str(python()), "-m", "pip", "install", "--quiet", "--requirement", str(REQUIREMENTS)])
    done.write_text(wanted)


def install_java(say: Say) -> None:
    """Fetch and compile again whenever the pom or the source has changed."""
    folder = cache() / "bench-streams"
    done, wanted = folder / "installed.txt", POM.read_text() + SOURCE.read_text()
    if done.is_file() and done.read_text() == wanted:
        return
    say(f"fetching Kafka Streams with Maven into {folder} (once)")
    shutil.rmtree(folder, ignore_errors=True)
    jars, classes = folder / "jars", folder / "classes"
    classes.mkdir(parents=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={jars}"]
    _run(["mvn", "-q", "-B", "-f", str(POM), *goal])
    _run(["javac", "-cp", f"{jars}/*", "-d", str(classes), str(SOURCE)])
    done.write_text(wanted)


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if done.returncode:
        raise SystemExit(f"error: {' '.join(command)}\n{(done.stdout + done.stderr)[-2000:]}")
