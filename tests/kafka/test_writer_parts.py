"""What the writer is made of, without a broker: moves, rounds, sequence numbers, verdicts, versions."""

import pytest

from streamkit.errors import Bug, Fenced, Misconfigured, StreamkitError, WriterDead
from streamkit.kafka import transaction_calls as calls
from streamkit.kafka.delivery import Sequences, in_requests, in_rounds
from streamkit.kafka.error_codes import END, POSITIONS, PREPARE, PRODUCE, Reaction, error_for, name_of, worst
from streamkit.kafka.wire import compact_array, compact_string
from streamkit.kafka.writer import ALLOWED, KafkaWriter, WriterState
from streamkit.model.commit import OutBatch
from streamkit.model.ids import TopicPartition


def test_every_state_has_its_moves_and_every_other_move_is_a_bug() -> None:
    assert ALLOWED.keys() == set(WriterState)
    for state in WriterState:
        for target in WriterState:
            writer = KafkaWriter.__new__(KafkaWriter)
            writer.writer_id, writer.state = "w", state
            if target in ALLOWED[state]:
                writer._move(target)
                assert writer.state is target
            else:
                with pytest.raises(Bug):
                    writer._move(target)


def test_rounds_hold_one_batch_per_partition_in_order() -> None:
    left, right = TopicPartition("t", 0), TopicPartition("t", 1)
    batches = [OutBatch(p, None, n) for n, p in enumerate([left, left, right, left, right])]  # type: ignore[arg-type]
    rounds = in_rounds(batches)
    assert [[out.count for out in each] for each in rounds] == [[0, 2], [1, 4], [3]]
    assert in_rounds([]) == []


def test_a_request_holds_no_more_than_a_broker_takes_and_every_batch_is_in_one() -> None:
    partitions = [TopicPartition("t", number) for number in range(150)]
    content = dict.fromkeys(partitions, bytes(900_000)) | {partitions[7]: bytes(40_000_000)}
    requests = in_requests(partitions, content)
    assert [each for request in requests for each in request] == partitions
    sizes = [sum(len(content[each]) for each in request) for request in requests]
    assert max(size for size, request in zip(sizes, requests, strict=True) if len(request) > 1) < 2**25
    assert len(requests) <= 8
    assert in_requests(partitions[:3], content) == [partitions[:3]]


def test_sequence_numbers_go_on_at_zero_after_the_largest() -> None:
    class Builder:
        stamped: tuple[int, ...] = ()

        def set_producer_state(self, *state: int) -> None:
            self.stamped = state

        def build(self) -> bytes:
            return b""

    sequences = Sequences()
    sequences.begin(calls.Producer(5, 6))
    builder = Builder()
    seen = []
    for _ in range(4):
        sequences.stamp(OutBatch(TopicPartition("t", 0), builder, 2**30))  # type: ignore[arg-type]
        seen.append(builder.stamped)
    assert seen == [(5, 6, 0), (5, 6, 2**30), (5, 6, 0), (5, 6, 2**30)]


@pytest.mark.parametrize(
    ("codes", "table", "want"),
    [
        ((0, 0), PRODUCE, (Reaction.DONE, 0)),
        ((0, 51, 16), PREPARE, (Reaction.MOVED, 16)),
        ((55, 29, 55), PREPARE, (Reaction.FORBIDDEN, 29)),
        ((22, 14), POSITIONS, (Reaction.FENCED, 22)),
        ((10, 6, 47), PRODUCE, (Reaction.FENCED, 47)),
        ((48,), END, (Reaction.DEAD, 48)),
        ((4711,), PRODUCE, (Reaction.DEAD, 4711)),
        ((), POSITIONS, (Reaction.DEAD, -1)),
    ],
)
def test_the_worst_of_several_answers_counts(
    codes: tuple[int, ...], table: dict[int, Reaction], want: tuple[Reaction, int]
) -> None:
    assert worst(codes, table) == want


def test_no_table_lets_a_code_pass_that_is_not_zero() -> None:
    for table in (PREPARE, PRODUCE, POSITIONS, END):
        assert [code for code, verdict in table.items() if verdict is Reaction.DONE] == [0]


@pytest.mark.parametrize(
    ("verdict", "error"),
    [
        (Reaction.FENCED, Fenced),
        (Reaction.FORBIDDEN, Misconfigured),
        (Reaction.DEAD, WriterDead),
        (Reaction.DOUBT, WriterDead),
    ],
)
def test_a_verdict_says_who_must_act(verdict: Reaction, error: type[StreamkitError]) -> None:
    raised = error_for(verdict, 90, doing="EndTxn", where="here", detail="because")
    assert type(raised) is error
    told, _, _ = str(raised).partition("; hint: ")
    assert told.endswith("at here; EndTxn answered PRODUCER_FENCED (90): because")


def test_a_code_without_a_name_is_shown_by_number() -> None:
    assert name_of(4711) == "error code 4711"


def test_the_transaction_version_comes_from_the_finalized_features() -> None:
    def answer(features: list[tuple[str, int]]) -> bytes:
        packed = [
            compact_string(name) + level.to_bytes(2) + (0).to_bytes(2) + b"\0" for name, level in features
        ]
        body = compact_array(packed)
        tags = b"\x01\x02" + bytes([len(body)]) + body if features else b"\0"
        return b"\0\0" + compact_array([bytes([0, 26, 0, 0, 0, 5, 0])]) + b"\0\0\0\0" + tags

    def read(features: list[tuple[str, int]]) -> calls.Abilities:
        return calls.api_versions().answer(b"\0\0\0\1" + answer(features))

    both = read([("group.version", 1), ("transaction.version", 2)])
    assert both == calls.Abilities({26: (0, 5)}, 2)
    # That a broker knows EndTxn 5 says nothing: without the feature such a request wedges the writer id.
    assert read([("group.version", 1)]).transaction_version == 0
    assert read([]).transaction_version == 0


def test_the_best_version_is_the_highest_that_both_know() -> None:
    abilities = calls.Abilities({0: (0, 10), 26: (0, 2)}, 0)
    assert abilities.best(0, 9, 11) == 10
    assert abilities.best(0, 9, 9) == 9
    assert abilities.best(26, 3, 4) == 3  # the connection then refuses it with a reason
