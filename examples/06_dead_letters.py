"""What happens to a record that cannot be read or processed: the pipeline's error policy.

    sk.dead_letter()                     set aside in a topic of its own, with the reason; the default
    sk.dead_letter(retries=3)            after three more tries
    sk.skip()                            logged and left out
    sk.fail()                            its task waits there and tries again; the others go on

A dead letter is committed in the same transaction as everything else: never lost, never there twice.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Transfer(msgspec.Struct):
    """Money moves; the amount is text, as the bank sends it."""

    amount: str


transfers = sk.topic("transfers", Transfer)
amounts = sk.topic("amounts", int)


def in_cents(transfer: Transfer) -> int:
    """Raises for an amount that is none."""
    return round(float(transfer.amount) * 100)


banking = sk.pipeline("banking", on_error=sk.dead_letter(retries=2, delay_s=0.1))
banking.read(transfers).map(in_cents).write(amounts)


def main() -> None:
    """Two good records, one that cannot be processed, one that cannot even be read."""
    with Harness(banking) as harness:
        harness.send(transfers, Transfer("12.50"), Transfer("a lot"), Transfer("3"))
        harness.send_bytes("transfers", b"not JSON at all")
        harness.run()
        print("amounts:", harness.read(amounts))
        for letter in harness.dead_letters():
            step, error = letter.headers["streamkit.step"], letter.headers["streamkit.error"]
            print(f"{letter.value!r} failed in {step!r}: {error!r}")


if __name__ == "__main__":
    main()
