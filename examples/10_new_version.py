"""A new version of the pipeline whose state has another shape: raise `version`, say how to read the old one.

Stored values carry their version; an upcaster lifts an old one when it is read. A renamed step is refused.
"""

import msgspec

import streamkit as sk
from streamkit.errors import IncompatiblePlan
from streamkit.testing import Harness

sales, reports = sk.topic("sales", int), sk.topic("reports", str)


class Totals(msgspec.Struct):
    """Version 2 of the state: version 1 was only the sum, a bare int."""

    cents: int = 0
    sales: int | None = None  # not known for what was sold before


OLD = sk.value(int, 0, name="total")
NEW = sk.value(Totals, Totals(), name="total", version=2, upcasters={1: lambda cents: {"cents": cents}})


def report(cents: int, ctx: sk.Context[str, str], total: sk.ValueState[int] = OLD) -> None:
    """Version 1."""
    ctx.emit(f"v1: {total.update(lambda before: before + cents)} cents")


def report_both(cents: int, ctx: sk.Context[str, str], total: sk.ValueState[Totals] = NEW) -> None:
    """Version 2."""
    now = total.update(lambda before: Totals(before.cents + cents, (before.sales or 0) + 1))
    ctx.emit(f"v2: {now.cents} cents, {now.sales} sales since v2")


before, after, renamed = (sk.pipeline("sales-report") for _ in range(3))
before.agent(sales, key=lambda _cents: "all", to=reports, name="report")(report)
after.agent(sales, key=lambda _cents: "all", to=reports, name="report")(report_both)
renamed.agent(sales, key=lambda _cents: "all", to=reports, name="another")(report_both)


def main() -> None:
    """Version 2 over the state of version 1; then a step with another name."""
    with Harness(before) as harness:
        harness.send(sales, 500)
        harness.run()
        harness.change_pipeline(after)
        harness.send(sales, 100)
        harness.run()
        print(*harness.read(reports), sep="\n")
        try:
            harness.change_pipeline(renamed)
        except IncompatiblePlan as error:
            print("refused:", error.detail)


if __name__ == "__main__":
    main()
