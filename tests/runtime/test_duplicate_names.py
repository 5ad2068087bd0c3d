from structlog.testing import capture_logs

from streamkit.runtime.duplicate_names import DuplicateNames
from streamkit.runtime.slot import take_slot


def told(twins: DuplicateNames, *live: str) -> list[str]:
    with capture_logs() as logs:
        twins.look(frozenset(live))
    assert all(each["log_level"] == "warning" for each in logs)
    assert all("STREAMKIT_WORKER" in each["hint"] and "--state-dir" in each["hint"] for each in logs)
    return [each["other"] for each in logs]


def test_two_folders_give_the_same_name_and_that_is_told_once(tmp_path):
    """As in two containers of one host name, or two checkouts on one host."""
    first, second = take_slot(tmp_path / "a"), take_slot(tmp_path / "b")
    ours, other = f"shop.{first.life_name}", f"shop.{second.life_name}"
    twins = DuplicateNames(ours)
    assert told(twins, ours) == []
    assert told(twins, ours, other) == [other]
    assert told(twins, ours, other) == []
    first.release()
    second.release()


def test_workers_that_share_a_folder_are_no_twins(tmp_path):
    first, second = take_slot(tmp_path), take_slot(tmp_path)
    twins = DuplicateNames(f"shop.{first.life_name}")
    assert told(twins, f"shop.{first.life_name}", f"shop.{second.life_name}") == []
    first.release()
    second.release()
