"""One client of the in-memory cluster: makes readers, writers, memberships and admins that share its network."""

import asyncio
import math
from collections.abc import Callable
from typing import TypeVar

from streamkit.kafka.ports import MemberOptions, WriterOptions
from streamkit.testing.memory.admin import MemoryAdmin
from streamkit.testing.memory.broker import MemoryBroker
from streamkit.testing.memory.client import Client
from streamkit.testing.memory.membership import MemoryMembership
from streamkit.testing.memory.network import Network, NoReply
from streamkit.testing.memory.reader import MemoryReader
from streamkit.testing.memory.writer import MemoryWriter
