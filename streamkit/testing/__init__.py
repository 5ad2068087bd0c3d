"""Running pipelines without a cluster: the harness for unit tests, the in-memory log, a local broker.

the harness     harness harness_worker given left_open received names
virtual time    virtual_time virtual_disk watched
"""

from streamkit.testing.harness import Harness
from streamkit.testing.received import Received

__all__ = ["Harness", "Received"]
