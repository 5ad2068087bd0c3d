import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamkit.errors import Misuse
from streamkit.model.ids import TaskId
from streamkit.snapshots import layout
from streamkit.snapshots.store import is_name
from streamkit.state.row_groups import GroupRange

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(NAMES, NAMES)
def test_any_pipeline_and_any_stage_have_names_of_their_own(one: str, other: str) -> None:
    groups = GroupRange(0, 255)
    names = [layout.format_file(each) for each in (one, other)]
    paths = [layout.rows_path(TaskId(each, 3), groups, "values", "ab" * 32) for each in (one, other)]
    assert all(is_name(each) for each in names + paths)
    assert all(layout.is_rows_path(each) for each in paths)
    assert (names[0] == names[1]) is (paths[0] == paths[1]) is (one == other)


def test_names_are_what_they_are_for_ever() -> None:
    assert layout.format_file("shop") == "shop/format.json"
    assert layout.savepoint_folder("shop", "7.a_b-c") == "shop/savepoints/7.a_b-c"
    path = layout.rows_path(TaskId("totals/eu", 3), GroupRange(0, 255), "values", "ab" * 32)
    assert path == "parts/totals=2Feu/3/0000-0255.values.abababababababab.sst"
    assert layout.format_file("..") == "=2E./format.json"


@pytest.mark.parametrize("savepoint", ["", ".", "..", "a/b", "../x", "/etc", "a b", ".hidden"])
def test_an_id_of_a_person_never_leads_elsewhere(savepoint: str) -> None:
    with pytest.raises(Misuse, match="no id of a savepoint"):
        layout.savepoint_folder("shop", savepoint)


@pytest.mark.parametrize(
    "path", ["x", "parts", "../parts/x", "parts/../x", "/parts/x", "manifest.json", "parts//x"]
)
def test_a_manifest_names_only_parts(path: str) -> None:
    assert not layout.is_rows_path(path)
