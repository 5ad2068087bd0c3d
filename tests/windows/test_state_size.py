"""An open window costs little: its accumulator and one timer."""

from streamkit.model.duration import seconds
from streamkit.operators.aggregators import count
from streamkit.windows import session, tumbling
from streamkit.windows.definition import windowing
from streamkit.windows.step import WindowStep
from tests.windows.scope import Task

KEY = b"k0000001"
NOW = 1_700_000_000_000


def bytes_of(task: Task) -> int:
    return sum(len(key) + len(value) for key, value in task.rows.items())


def test_an_open_window_of_a_key_is_a_value_and_a_timer_in_seventy_bytes() -> None:
    task = Task(WindowStep(name="w", windows=windowing(tumbling(seconds(10))), fold=count(), value_type=int))
    for _ in range(100):
        task.push(KEY, 1, NOW)
    task.restart()
    assert len(task.rows) == 2
    assert bytes_of(task) == 31 + 39


def test_an_open_session_has_one_row_more() -> None:
    task = Task(WindowStep(name="w", windows=windowing(session(seconds(10))), fold=count(), value_type=int))
    for number in range(100):
        task.push(KEY, 1, NOW + number)
    task.restart()
    assert len(task.rows) == 3
    assert bytes_of(task) <= 125
