"""A trigger of your own: a result as soon as a window is worth more than 1000, and another when it closes.

`ctx.state` is one small value per key and window, kept like any state; `state_type` says of which type.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Order(msgspec.Struct):
    """Something was ordered."""

    shop: str
    at: int
    amount: int


class EarlyIfLarge(sk.Trigger[Order]):
    """Fires once when the amount passes 1000, and again at the end of the window."""

    state_type = int

    def on_record(
        self, value: Order, timestamp: int, window: sk.Window, ctx: sk.TriggerContext
    ) -> sk.Decision:
        """Count along; the timer for the end is set again at every record, which changes nothing."""
        ctx.add_event_timer(window.max_timestamp)
        before = ctx.state or 0
        ctx.state = before + value.amount
        return sk.Decision.FIRE if before <= 1000 < ctx.state else sk.Decision.CONTINUE

    def on_event_time(self, time: int, window: sk.Window, ctx: sk.TriggerContext) -> sk.Decision:
        """The end of the window."""
        return sk.Decision.FIRE


orders, sums = sk.topic("orders", Order, time="at"), sk.topic("sums", int)
trade = sk.pipeline("trade")
by_shop = trade.read(orders).key_by(lambda order: order.shop)
windows = by_shop.window(sk.tumbling(sk.minutes(1)), trigger=EarlyIfLarge())
windows.sum(lambda order: order.amount, to=int).write(sums)


def main() -> None:
    """The early result comes with the second order, the final one when the minute is over."""
    with Harness(trade, partitions=1) as harness:
        harness.send(orders, Order("a", 1_000, 700), Order("a", 2_000, 700), Order("a", 3_000, 700))
        harness.run()
        print("early:", harness.read(sums))
        harness.send(orders, Order("a", 61_000, 1))
        harness.run()
        print("final:", harness.read(sums))


if __name__ == "__main__":
    main()
