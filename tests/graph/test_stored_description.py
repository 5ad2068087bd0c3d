"""What is stored of a plan, written down: a release that changed it would refuse the state of running pipelines."""

import json

import pytest

from streamkit.graph.fingerprint import describe_plan, fingerprint
from streamkit.graph.pipeline import Pipeline, pipeline
from streamkit.graph.resolve import resolve
from streamkit.model.duration import seconds
from streamkit.operators.process import Context, Operator
from streamkit.state.collection_views import map_of
from streamkit.state.views import value
from streamkit.windows import tumbling
from tests.graph.shop import Click, by_number, by_page, clicks, counts, taps, unique


class Seen(Operator[int, Click, Click]):
    last = value(int)
    pages = map_of(str, int)

    def on_record(self, value: Click, ctx: Context[int, Click]) -> None: ...


def orders() -> Pipeline:
    p = pipeline("orders", partitions=6)
    keyed = p.read(clicks).key_by(by_page)
    keyed.window(tumbling(seconds(60))).count(name="per_minute").write(counts)
    keyed.key_by(by_number, partitions=3).process(Seen()).write(unique)
    p.read_keyed(taps).count(name="all_taps").write(counts)
    return p


STORED = """
{
 "pipeline": "orders",
 "generation": 1,
 "key_groups": 1024,
 "stages": {
  "clicks": {
   "partitions": 4,
   "inputs": {
    "clicks": {"kind": "source", "key": "str", "partitions": 4}
   },
   "stores": {}
  },
  "by_page": {
   "partitions": 6,
   "inputs": {
    "orders.by_page.shuffle.1": {"kind": "shuffle", "key": "str", "partitions": 6, "value": "Click"}
   },
   "stores": {
    "per_minute": {"kind": "window", "type": "int", "version": 1},
    "per_minute.event_timers": {"kind": "event_timers", "type": "bool", "version": 1}
   },
   "definitions": {"per_minute": "tumbling windows of 60000 ms"}
  },
  "by_number": {
   "partitions": 3,
   "inputs": {
    "orders.by_number.shuffle.1": {"kind": "shuffle", "key": "int", "partitions": 3, "value": "Click"}
   },
   "stores": {
    "Seen.last": {"kind": "value", "type": "int", "version": 1},
    "Seen.pages": {"kind": "map", "type": "int", "version": 1, "map_key": "str"}
   }
  },
  "taps": {
   "partitions": 2,
   "inputs": {
    "taps": {"kind": "source", "key": "str", "partitions": 2}
   },
   "stores": {
    "all_taps": {"kind": "value", "type": "int", "version": 1}
   }
  }
 }
}
"""


@pytest.mark.parametrize(
    ("generation", "resolved", "open_"),
    [(1, "a47aed9e5c4c90ad", "f2e03652d055d718"), (2, "47bcda8ca14b3713", "151b925666a84c5c")],
)
def test_a_fingerprint_stays_what_it_was(generation: int, resolved: str, open_: str) -> None:
    plan = orders().plan(generation=generation)
    assert fingerprint(resolve(plan, {"clicks": 4, "taps": 2})) == resolved
    assert fingerprint(plan) == open_


def test_a_stored_description_stays_what_it_was() -> None:
    plan = resolve(orders().plan(), {"clicks": 4, "taps": 2})
    assert describe_plan(plan) == json.loads(STORED)
