"""Compute once per machine what makes every later start quick: a formatted disk and an archive of classes.

Both are made by running Kafka itself, and kept beside the jars. The archive is only ever a gain in time: a JVM
that cannot use it ignores it, and a failed attempt is remembered, so that it is not repeated at every start.
"""

import hashlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from streamkit.errors import Misconfigured, StreamkitError
from streamkit.testing.broker.cluster import JvmCluster, Kafka, Wishes
from streamkit.testing.broker.jars import (
    Say,
    cache_folder,
    cache_lock,
    fetch_jars,
    find_java,
    has_jars,
    missing,
)
from streamkit.testing.broker.settings import BrokerNode, kafka_id, kafka_settings
from streamkit.testing.broker.wheels import INSTALL

FORMAT_LIMIT_S = 120.0
ARCHIVE_LIMIT_S = 120.0  # an orderly exit, then writing some 50 MB


def prepare(progress: Say) -> Kafka:
    """Return a Kafka that is ready to run; the first call on a machine takes some 20 seconds."""
    java = find_java()
    reason = missing()
    if reason or java is None:
        raise Misconfigured(
            "a local broker cannot be started",
            detail=f"{reason}.",
            hint=f"Run `{INSTALL}`, or install Java 17 or newer and Maven, or set STREAMKIT_BROKERS to the address of a running broker.",
        )
    archive = _archive_path(java)
    checkpoint = cache_folder() / "bootstrap.checkpoint"
    if not (has_jars() and archive.exists() and checkpoint.exists()):
        with cache_lock(progress):
            jars = fetch_jars(progress)
            _ensure_checkpoint(Kafka(java, jars, b"", ()), checkpoint)
            _ensure_archive(Kafka(java, jars, checkpoint.read_bytes(), ()), archive, progress)
    flags = (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto") if archive.stat().st_size else ()
    return Kafka(java, cache_folder() / "jars", checkpoint.read_bytes(), flags)


def _archive_path(java: str) -> Path:
    """Name the archive after the java that made it: an upgraded java makes its own."""
    binary = Path(java).resolve()
    mark = hashlib.sha256(f"{binary} {binary.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return cache_folder() / f"classes-{mark}.jsa"


def _ensure_checkpoint(kafka: Kafka, checkpoint: Path) -> None:
    """Keep the feature levels of a new cluster, which Kafka writes when it formats a folder."""
    if checkpoint.exists():
        return
    with tempfile.TemporaryDirectory(prefix="format-", dir=checkpoint.parent) as work:
        made = Path(work) / checkpoint.name
        made.write_bytes(format_folder(kafka, Path(work)))
        made.rename(checkpoint)


def format_folder(kafka: Kafka, work: Path, *options: str) -> bytes:
    """Let Kafka format a node's folder in `work`, and return the checkpoint that every node of a cluster begins with.

    The options are those of `kafka-storage format`; users that it adds are in the checkpoint too.
    """
    node = BrokerNode(1, 1, 2, work)  # nothing listens while formatting; any port will do
    settings = kafka_settings(node, [node], "test", {})
    node.properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    arguments = ["format", "--cluster-id", kafka_id(), "--config", str(node.properties), *options]
    done = subprocess.run(  # noqa: S603  (a fixed command)
        [*kafka.command("-Xmx128m"), "kafka.tools.StorageTool", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=FORMAT_LIMIT_S,
        check=False,
    )
    made = node.data / "bootstrap.checkpoint"
    if not made.is_file():
        raise Misconfigured(
            "Kafka could not format a folder",
            detail=done.stdout.strip(),
            hint="Kafka 4 needs Java 17 or newer; see `java -version`.",
        )
    return made.read_bytes()


def _ensure_archive(kafka: Kafka, archive: Path, progress: Say) -> None:
    """Run a broker once and let the JVM write down its classes when it exits; an empty file says it failed."""
    if archive.exists():
        return
    progress("making an archive of Kafka's classes (once)")
    with tempfile.TemporaryDirectory(prefix="archive-", dir=archive.parent) as work:
        made = Path(work) / "classes.jsa"
        training = kafka._replace(archive_flags=(f"-XX:ArchiveClassesAtExit={made}",))
        cluster = JvmCluster(training, Wishes(folder=Path(work)))
        try:
            with cluster.start():
                for pid in cluster.pids():
                    os.kill(pid, signal.SIGTERM)  # the archive is written by an orderly exit only
                cluster.wait(ARCHIVE_LIMIT_S)
        except StreamkitError as error:
            progress(f"no archive of Kafka's classes, starts will be slower: {error.problem}")
        if not made.is_file():
            made.touch()
        made.rename(archive)
