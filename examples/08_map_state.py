"""Map state: a whole map for every key. Each entry is stored on its own, so a map may be large.

Here the key is a customer and the map is the cart: product -> quantity. A checkout sends the cart on and empties it.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Action(msgspec.Struct):
    """A customer puts something into the cart, or checks out (no product)."""

    customer: str
    product: str | None = None
    quantity: int = 1


class Order(msgspec.Struct):
    """What was in the cart."""

    customer: str
    items: dict[str, int]


class Cart(sk.Operator[str, Action, Order]):
    """One cart per customer."""

    items = sk.map_of(str, int)

    def on_record(self, value: Action, ctx: sk.Context[str, Order]) -> None:
        """Fill the cart, or send it on."""
        if value.product is not None:
            self.items[value.product] = (self.items.get(value.product) or 0) + value.quantity
            return
        ctx.emit(Order(ctx.key, dict(self.items.items())))
        self.items.clear()


actions, orders = sk.topic("actions", Action), sk.topic("orders", Order)
shopping = sk.pipeline("shopping")
shopping.read(actions).key_by(lambda action: action.customer).process(Cart()).write(orders)


def main() -> None:
    """Two checkouts of the same customer: the second cart begins empty."""
    with Harness(shopping) as harness:
        harness.send(
            actions, Action("ann", "tea", 2), Action("ann", "jam"), Action("ann", "tea"), Action("ann")
        )
        harness.send(actions, Action("ann", "bread"), Action("ann"))
        harness.run()
        for order in harness.read(orders):
            print(f"{order.customer} buys {order.items}")


if __name__ == "__main__":
    main()
