"""A real Kafka for everyone: one call gives a running broker, wherever the caller is.

Read in this order: `start.py` chooses the way, `cluster.py` runs nodes as local JVMs, `node.py` is one of them,
`watch.py` makes sure that none outlives its owner, `kept_data.py` is a folder that does. `jars.py` and `warmup.py` fill the cache, once per machine.
`secured.py` is a broker of its own kind, with TLS and SASL.

a broker        start running wire
local JVMs      cluster node settings watch secured kept_data
containers      container engine
what it takes   jars wheels warmup
"""

from streamkit.testing.broker.running import Broker
from streamkit.testing.broker.start import can_start, start_broker, start_dev_broker

__all__ = ["Broker", "can_start", "start_broker", "start_dev_broker"]
