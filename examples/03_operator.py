"""Full control: an operator is a class that is called once per record, with state of its own for every key.

State is declared as a class attribute and always means the state of the current key. Other attributes are for what
never changes, like the limit here.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Payment(msgspec.Struct):
    """Money leaves an account."""

    account: str
    amount: int


class Alarm(msgspec.Struct):
    """An account has spent more than its limit."""

    account: str
    spent: int


class OverLimit(sk.Operator[str, Payment, Alarm]):
    """Raise one alarm for each account that spends more than the limit."""

    spent = sk.value(int, 0)
    warned = sk.value(bool, False)

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def on_record(self, value: Payment, ctx: sk.Context[str, Alarm]) -> None:
        """Add up; speak once."""
        spent = self.spent.update(lambda before: before + value.amount)
        if spent > self.limit and not self.warned.get():
            self.warned.set(True)
            ctx.emit(Alarm(ctx.key, spent))


payments, alarms = sk.topic("payments", Payment), sk.topic("alarms", Alarm)
watching = sk.pipeline("watching")
watching.read(payments).key_by(lambda payment: payment.account).process(OverLimit(limit=100)).write(alarms)


def main() -> None:
    """Ann goes over her limit twice, and is told once."""
    with Harness(watching) as harness:
        harness.send(payments, Payment("ann", 60), Payment("bob", 60), Payment("ann", 60), Payment("ann", 60))
        harness.run()
        for alarm in harness.read(alarms):
            print(f"{alarm.account} has spent {alarm.spent}")


if __name__ == "__main__":
    main()
