"""Several sources, several sinks: `union` joins streams, and a stream that is used twice is a fork.

Everything that one span of input causes is committed together, in all of the topics.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Order(msgspec.Struct):
    """Somebody bought something."""

    customer: str
    cents: int


web = sk.topic("web-orders", Order)
shop = sk.topic("shop-orders", Order)
large = sk.topic("large-orders", Order)
revenue = sk.topic("revenue", int)

selling = sk.pipeline("selling")
orders = selling.read(web).union(selling.read(shop))
orders.filter(lambda order: order.cents >= 100_00, name="is_large").write(large)
orders.key_by(lambda order: order.customer).sum(lambda order: order.cents, to=int).write(revenue)


def main() -> None:
    """Three orders from two places."""
    with Harness(selling, workers=2) as harness:
        harness.send(web, Order("ann", 20_00), Order("bob", 250_00))
        harness.send(shop, Order("ann", 5_00))
        harness.run()
        print("large:", [(order.customer, order.cents) for order in harness.read(large)])
        totals = {record.key: record.value for record in harness.records(revenue)}
        print("revenue:", dict(sorted(totals.items())))


if __name__ == "__main__":
    main()
