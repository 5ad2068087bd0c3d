"""The pipeline under fire: one shuffle, one count per key, and the input's own number carried to the output."""

import msgspec

import streamkit as sk


class Visit(msgspec.Struct):
    """`number` counts the visits of one user, as they were sent."""

    user: str
    number: int


class Tally(msgspec.Struct):
    """`count` is what the pipeline counted when it saw visit `number` of this user."""

    user: str
    number: int
    count: int


class Counting(sk.Operator[str, Visit, Tally]):
    """Counts in state, so that a wrong state shows in the very next output."""

    seen = sk.value(int, 0)

    def on_record(self, value: Visit, ctx: sk.Context[str, Tally]) -> None:
        count = self.seen.get() + 1
        self.seen.set(count)
        ctx.emit(Tally(value.user, value.number, count))


def user_of(visit: Visit) -> str:
    return visit.user


def next_tally(run: str) -> sk.Pipeline:
    """The next version: it does something beside, in a stage of its own that the version before does not know."""
    pipeline = tally(run)
    pipeline.read(sk.topic(f"notes-{run}", Visit)).write(sk.topic(f"seen-{run}", Visit))
    return pipeline


def tally(run: str) -> sk.Pipeline:
    """The pipeline of one run; runs beside each other do not meet."""
    pipeline = sk.pipeline(f"tally-{run}")
    visits, tallies = sk.topic(f"visits-{run}", Visit), sk.topic(f"tallies-{run}", Tally)
    pipeline.read(visits).key_by(user_of).process(Counting()).write(tallies)
    return pipeline
