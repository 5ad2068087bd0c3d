import itertools

import pytest

from streamkit.errors import Bug
from streamkit.model.ids import TaskId, TopicPartition
from streamkit.runtime.task import ALLOWED, Condemned, Life, Task
from tests.runtime.pages import counting


def a_task() -> Task:
    stage = counting().plan().stages[0]
    return Task(TaskId(stage.name, 0), stage, {})


def test_every_state_says_where_it_may_go():
    assert ALLOWED.keys() == set(Life)


@pytest.mark.parametrize(("before", "after"), list(itertools.product(Life, Life)))
def test_a_life_makes_only_the_moves_that_are_drawn(before, after):
    task = a_task()
    task.life = before
    if after in ALLOWED[before]:
        task.move(after)
        assert task.life is after
    else:
        with pytest.raises(Bug):
            task.move(after)


def test_a_condemned_record_is_remembered_until_it_is_committed():
    task = a_task()
    place = TopicPartition("views", 0)
    reason = Condemned("step", "error", "")
    task.condemned = {place: {3: reason, 8: reason}}
    task.landed({place: 5})
    assert task.condemned == {place: {8: reason}}
    task.landed({place: 9})
    assert task.condemned == {place: {}}
