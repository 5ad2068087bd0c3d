"""Types that records have or have not: keys by inference, and what a person is told on the first record that differs."""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Order(msgspec.Struct):
    customer: int
    shop: str


ORDERS = sk.topic("orders", Order)
COUNTS = sk.topic("counts", int, key=int)


def test_a_lambda_that_names_a_field_gives_its_key_the_type_of_the_field():
    pipeline = sk.pipeline("by-customer")
    pipeline.read(ORDERS).key_by(lambda order: order.customer).count().write(COUNTS)
    with Harness(pipeline) as harness:
        harness.send(ORDERS, Order(7, "a"), Order(7, "a"))
        harness.run()
        assert [(each.key, each.value) for each in harness.records(COUNTS)] == [(7, 1), (7, 2)]


def test_a_key_of_another_type_is_told_on_the_first_record_with_what_to_write():
    pipeline = sk.pipeline("by-customer")
    pipeline.read(ORDERS).key_by(lambda order: order.customer + 1).count().write(sk.topic("counts", int))
    with Harness(pipeline) as harness:
        harness.send(ORDERS, Order(7, "a"))
        harness.run()
        (letter,) = harness.dead_letters()
        error = letter.headers["streamkit.error"].decode()
        assert "key_by expects keys of type str, got an int" in error
        assert "pass key_type=int to key_by" in error


def test_a_tombstone_says_how_to_declare_a_topic_that_has_some():
    pipeline = sk.pipeline("copy")
    pipeline.read(ORDERS).write(sk.topic("out", Order))
    with Harness(pipeline) as harness:
        harness.send_bytes("orders", None, key=b"k")
        harness.run()
        (letter,) = harness.dead_letters()
        error = letter.headers["streamkit.error"].decode()
        assert "a record without a value (a tombstone)" in error
        assert 'declare it as topic("orders", Order | None)' in error


def test_a_tombstone_is_none_where_the_topic_says_so():
    orders = sk.topic("orders", Order | None)
    pipeline = sk.pipeline("copy")
    pipeline.read(orders).filter(lambda order: order is not None).write(sk.topic("out", Order | None))
    with Harness(pipeline) as harness:
        harness.send_bytes("orders", None, key=b"k")
        harness.run()
        assert harness.read(sk.topic("out", Order | None)) == []
