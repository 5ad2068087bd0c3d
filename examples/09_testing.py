"""Testing a pipeline: the harness runs the real runtime on an in-memory log and a virtual clock, in milliseconds.

Send, run, read. Crash a worker, scale, let time pass. Run this file with Python or with pytest.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Vote(msgspec.Struct):
    """One voter, one voice."""

    voter: str
    choice: str


class OncePerVoter(sk.Operator[str, Vote, Vote]):
    """Let only the first vote of each voter through."""

    voted = sk.value(bool, False)

    def on_record(self, value: Vote, ctx: sk.Context[str, Vote]) -> None:
        """The first one counts."""
        if not self.voted.get():
            self.voted.set(True)
            ctx.emit(value)


votes, results = sk.topic("votes", Vote), sk.topic("results", int)
election = sk.pipeline("election")
valid = election.read(votes).key_by(lambda vote: vote.voter).process(OncePerVoter())
valid.key_by(lambda vote: vote.choice, name="by_choice").count().write(results)


def test_a_second_vote_does_not_count() -> None:
    """What it should do."""
    with Harness(election) as harness:
        harness.send(votes, Vote("ann", "yes"), Vote("ann", "yes"), Vote("bob", "yes"))
        harness.run()
        assert harness.read(results) == [1, 2]


def test_not_even_after_a_crash() -> None:
    """What it should do when things go wrong."""
    with Harness(election, workers=2) as harness:
        harness.send(votes, Vote("ann", "yes"), key="ann")
        harness.advance(0.01)
        harness.crash(0)
        harness.send(votes, Vote("ann", "yes"), key="ann")
        harness.run()
        assert harness.read(results) == [1]


if __name__ == "__main__":
    test_a_second_vote_does_not_count()
    test_not_even_after_a_crash()
    print("2 tests passed")
