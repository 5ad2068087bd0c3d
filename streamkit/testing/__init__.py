"""Running pipelines without a cluster: the harness for unit tests, the in-memory log, a local broker."""

from streamkit.testing.harness import Harness, Received

__all__ = ["Harness", "Received"]
