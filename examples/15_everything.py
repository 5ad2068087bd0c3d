"""One window of everything, and a trigger that says when it fires: a bill is sent once it has grown by 100.

Without a trigger such a window fires only when all input is finished. `PurgingTrigger` would empty it each time.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Usage(msgspec.Struct):
    """What a customer has used in all, by the meter, and the price of the last piece."""

    customer: str
    meter: int
    price: float


usage = sk.topic("usage", Usage)
bills = sk.topic("bills", float)
billing = sk.pipeline("billing")
(
    billing.read(usage)
    .key_by(lambda used: used.customer)
    .window(sk.everything(), trigger=sk.DeltaTrigger(100, lambda last, used: used.meter - last.meter))
    .sum(lambda used: used.price)
    .write(bills)
)


def main() -> None:
    """The meter passes 100 more than at the first record, then 100 more than that."""
    with Harness(billing) as harness:
        for meter in (0, 60, 99, 130, 180, 231):
            harness.send(usage, Usage("ann", meter, 2.5))
        harness.run()
        for bill in harness.read(bills):
            print(f"so far: {bill}")


if __name__ == "__main__":
    main()
