import json

from streamkit.graph.describe import as_dict, as_mermaid, as_text
from streamkit.graph.pipeline import pipeline
from streamkit.graph.policy import skip
from streamkit.graph.resolve import resolve
from tests.graph.shop import Dedup, by_page, clicks, counts, is_human, taps, top_pages, unique

TEXT = """\
pipeline top-pages  (generation 1, on error: dead_letter -> top-pages.dead-letters)

stage clicks (4 tasks)
  source clicks (4 partitions): str -> Click
  └─ filter is_human
     └─ key_by by_page -> top-pages.by_page.shuffle.1

stage by_page (4 tasks)
  shuffle top-pages.by_page.shuffle.1 (4 partitions): str -> Click
  └─ aggregate per_page
     └─ map_keyed to_total
        └─ write -> page-totals
  state per_page: value of int, version 1"""

FORKED = """\
pipeline p  (generation 1, on error: skip after 2 retries)

stage clicks
  source clicks: str -> Click
  ├─ filter is_human
  │  └─ write -> unique
  └─ key_by by_page -> p.by_page.shuffle.1
  source taps: str -> Click
  └─ write -> unique (as above)

stage by_page
  shuffle p.by_page.shuffle.1: str -> Click
  ├─ process Dedup
  └─ aggregate count
     └─ write -> page-counts
  state Dedup.seen: value of bool, version 1
  state count: value of int, version 1"""

MERMAID = """\
flowchart LR
  subgraph s0["clicks"]
    s0_0["filter is_human"]
    s0_1["key_by by_page -> top-pages.by_page.shuffle.1"]
    s0_0 --> s0_1
  end
  t0[("clicks")]
  t0 --> s0_0
  t1[("top-pages.by_page.shuffle.1")]
  s0_1 --> t1
  subgraph s1["by_page"]
    s1_0["aggregate per_page"]
    s1_1["map_keyed to_total"]
    s1_2["write -> page-totals"]
    s1_0 --> s1_1
    s1_1 --> s1_2
  end
  t1 --> s1_0
  t2[("page-totals")]
  s1_2 --> t2"""


def test_a_plan_as_text() -> None:
    assert as_text(resolve(top_pages().plan(), {"clicks": 4})) == TEXT


def test_the_headers_that_are_carried_on_are_shown() -> None:
    p = pipeline("p", carry_headers=("traceparent", "tenant"))
    p.read(clicks).write(unique)
    assert as_text(p.plan()).splitlines()[1] == "  headers carried on: traceparent, tenant"
    assert as_dict(p.plan())["carry_headers"] == ["traceparent", "tenant"]


def test_branches_and_unions_as_text() -> None:
    p = pipeline("p", on_error=skip(retries=2))
    p.read(clicks).filter(is_human).union(p.read(taps)).write(unique)
    keyed = p.read(clicks).key_by(by_page)
    keyed.process(Dedup())
    keyed.count().write(counts)
    assert as_text(p.plan()) == FORKED


def test_a_plan_as_mermaid() -> None:
    assert as_mermaid(top_pages().plan()) == MERMAID


def test_a_plan_as_plain_data() -> None:
    plain = as_dict(resolve(top_pages().plan(), {"clicks": 4}))
    assert json.loads(json.dumps(plain)) == plain
    assert [stage["name"] for stage in plain["stages"]] == ["clicks", "by_page"]
    assert plain["stages"][1]["steps"][0] == {
        "id": 0,
        "name": "per_page",
        "kind": "aggregate",
        "downstream": [1],
        "stores": ["per_page"],
    }
    assert plain["stages"][1]["inputs"] == [
        {
            "topic": "top-pages.by_page.shuffle.1",
            "kind": "shuffle",
            "key_type": "str",
            "value_type": "Click",
            "partitions": 4,
            "entry": [0],
        }
    ]
