"""What a commit may say of a partition while records of it are not done."""

from hypothesis import given
from hypothesis import strategies as st

from streamkit.model.ids import TopicPartition
from streamkit.task.positions import Positions

AT, OTHER = TopicPartition("in", 0), TopicPartition("in", 1)


def test_a_record_that_is_held_keeps_the_position_in_front_of_it():
    positions = Positions({AT: 5, OTHER: 0})
    positions.advance(AT, 7)
    positions.hold(AT, 7)
    positions.advance(AT, 9)
    positions.hold(AT, 9)
    positions.advance(AT, 12)
    positions.advance(OTHER, 3)
    assert positions == {AT: 7, OTHER: 3}
    assert positions.read(AT) == 12
    positions.release(AT, 7)
    assert positions[AT] == 9
    positions.release(AT, 9)
    assert positions[AT] == 12


@given(st.data())
def test_the_position_is_the_least_offset_that_is_not_done(data):
    """Against a set of what is not done: gaps in the log, records held or not, released in any order."""
    positions = Positions({AT: 0})
    read, open_ = 0, set()
    for _ in range(data.draw(st.integers(0, 40))):
        if open_ and data.draw(st.booleans()):
            done = data.draw(st.sampled_from(sorted(open_)))
            open_.remove(done)
            positions.release(AT, done)
        else:
            offset = read + data.draw(st.integers(0, 2))  # markers of transactions have offsets too
            if data.draw(st.booleans()):
                open_.add(offset)
                positions.hold(AT, offset)
            read = offset + 1
            positions.advance(AT, read)
        assert positions[AT] == min(open_, default=read)
        assert positions.read(AT) == read
