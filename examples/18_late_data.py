"""Late records: windows stay open for `lateness`, and send a new result on for each record that comes then.

What comes later still goes to the topic `late` as it was. Without one it is counted; it is never lost in silence.
"""

import msgspec

import streamkit as sk
from streamkit.testing import Harness


class Vote(msgspec.Struct):
    """Somebody voted."""

    party: str
    at: int


class Result(msgspec.Struct):
    """Votes of ten seconds."""

    party: str
    votes: int
    from_ms: int


def result(party: str, window: sk.Window, votes: int) -> Result:
    """The last one of a window is the one that counts."""
    return Result(party, votes, window.start)


votes, too_late = sk.topic("votes", Vote, time="at"), sk.topic("late-votes", Vote)
results = sk.topic("results", Result)
election = sk.pipeline("election")
(
    election.read(votes)
    .key_by(lambda vote: vote.party)
    .window(sk.tumbling(sk.seconds(10)), lateness=sk.seconds(20), late=too_late)
    .count(into=result)
    .write(results)
)


def main() -> None:
    """The third vote is late and counts, the last is too late."""
    with Harness(election, partitions=1) as harness:
        for at in (3_000, 12_000, 4_000, 35_000, 5_000):
            harness.send(votes, Vote("blue", at))
            harness.run()
        print("results:", [(each.from_ms, each.votes) for each in harness.read(results)])
        print("too late:", [vote.at for vote in harness.read(too_late)])


if __name__ == "__main__":
    main()
