"""A log in memory that keeps the promises of `kafka/ports.py`: transactions, fencing, groups, without a broker.

`MemoryBroker` is the cluster: plain code, no event loop. `MemoryLog` is one client of it, and `Network` is the
road between the two, where a simulation loses, delays, freezes and kills.

the cluster     broker topics partition groups transactions
a client        client log reader writer batch membership admin endings
between them    network bell refusal
"""

from streamkit.testing.memory.broker import MemoryBroker
from streamkit.testing.memory.log import MemoryLog
from streamkit.testing.memory.network import Fate, Network, NoReply, SeededNetwork

__all__ = ["Fate", "MemoryBroker", "MemoryLog", "Network", "NoReply", "SeededNetwork"]
