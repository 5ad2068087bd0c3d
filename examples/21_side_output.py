"""Side outputs: an operator sends values of a second type out by a side, and they go on as a stream of their own."""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Payment(msgspec.Struct):
    """Somebody paid with a card."""

    card: str
    amount: int


class Alert(msgspec.Struct):
    """A card has gone over its limit."""

    card: str
    spent: int


ALERTS = sk.side("alerts", Alert)


class Limit(sk.Operator[str, Payment, int]):
    """What each card has spent so far; beside it an alert for every payment above the limit."""

    sides = (ALERTS,)
    spent = sk.value(int, 0)

    def on_record(self, value: Payment, ctx: sk.Context[str, int]) -> None:
        """Both outputs keep the card as their key."""
        spent = self.spent.update(lambda cents: cents + value.amount)
        ctx.emit(spent)
        if spent > 1_000:
            ctx.emit_to(ALERTS, Alert(ctx.key, spent))


payments = sk.topic("payments", Payment)
totals, alerts = sk.topic("totals", int), sk.topic("alerts", Alert)
watch = sk.pipeline("watch")
spent = watch.read(payments).key_by(lambda payment: payment.card).process(Limit())
spent.write(totals)
spent.side(ALERTS).filter(lambda alert: alert.card != "house").write(alerts)


def main() -> None:
    """Two cards go over the limit, and one of them is the bank's own."""
    with Harness(watch, partitions=1) as harness:
        for card, amount in (("4711", 600), ("house", 2_000), ("4711", 700)):
            harness.send(payments, Payment(card, amount))
        harness.run()
        print("totals:", harness.read(totals))
        print("alerts:", [(each.card, each.spent) for each in harness.read(alerts)])


if __name__ == "__main__":
    main()
