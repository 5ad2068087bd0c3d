"""Each query computed from the list of events by its definition, window by window: nothing of streamkit but the structs.

It is slow and plain on purpose: every window looks at all events. Rows are tuples, in the order of the fields of the
query's result; lists of them are sorted.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator

from examples.nexmark.events import Auction, Bid, Event, Person

SIZE_MS, SLIDE_MS, GAP_MS = 10_000, 2_000, 10_000

Row = tuple[int | str, ...]


def q5(events: list[Event]) -> list[Row]:
    """(auction, bids, start, end) of each hopping window: the auctions with the most bids, all of them if they tie."""
    bids = bids_of(events)
    rows: list[Row] = []
    for start, end in windows(bids, SLIDE_MS):
        counts = Counter(bid.auction for bid in bids if start <= bid.at < end)
        most = max(counts.values(), default=0)
        rows += [(auction, n, start, end) for auction, n in counts.items() if n == most]
    return sorted(rows)


def q7(events: list[Event]) -> list[Row]:
    """(auction, bidder, price, at, end) of each tumbling window: the bids with the highest price."""
    bids = bids_of(events)
    rows: list[Row] = []
    for start, end in windows(bids, SIZE_MS):
        inside = [bid for bid in bids if start <= bid.at < end]
        highest = max((bid.price for bid in inside), default=0)
        rows += [(bid.auction, bid.bidder, bid.price, bid.at, end) for bid in inside if bid.price == highest]
    return sorted(rows)


def q8(events: list[Event]) -> list[Row]:
    """(person, name, start, end): who registered and opened an auction in the same tumbling window."""
    rows: list[Row] = []
    for start, end in windows(events, SIZE_MS):
        inside = [event for event in events if start <= event.at < end]
        sellers = {event.seller for event in inside if isinstance(event, Auction)}
        new = {(event.id, event.name) for event in inside if isinstance(event, Person)}
        rows += [(person, name, start, end) for person, name in new if person in sellers]
    return sorted(rows)


def q11(events: list[Event]) -> list[Row]:
    """(bidder, bids, start, end) of each session: bids of a user with no pause longer than the gap between them."""
    times: dict[int, list[int]] = defaultdict(list)
    for bid in bids_of(events):
        times[bid.bidder].append(bid.at)
    rows: list[Row] = []
    for bidder, unordered in times.items():
        found = sessions(sorted(unordered))
        rows += [(bidder, len(session), session[0], session[-1] + GAP_MS) for session in found]
    return sorted(rows)


def q12(seen: Iterable[tuple[int, Event]]) -> list[Row]:
    """(bidder, bids, start, end) of each tumbling window, by the time at which each bid was seen."""
    counts = Counter((event.bidder, now - now % SIZE_MS) for now, event in seen if isinstance(event, Bid))
    return sorted((bidder, n, start, start + SIZE_MS) for (bidder, start), n in counts.items())


def bids_of(events: list[Event]) -> list[Bid]:
    return [event for event in events if isinstance(event, Bid)]


def windows(events: list[Event], slide: int) -> Iterator[tuple[int, int]]:
    """All windows that begin at a multiple of `slide` and could hold one of the events."""
    first, last = min(event.at for event in events), max(event.at for event in events)
    for start in range((first - SIZE_MS) // slide * slide, last + 1, slide):
        yield start, start + SIZE_MS


def sessions(times: list[int]) -> list[list[int]]:
    found = [[times[0]]]
    for time in times[1:]:
        if time - found[-1][-1] < GAP_MS:
            found[-1].append(time)
        else:
            found.append([time])
    return found
