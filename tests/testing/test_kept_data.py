"""A folder for a broker's data: gone on with if it is ours, and left alone if it is anything else."""

import socket
from pathlib import Path

import msgspec
import pytest

from streamkit.errors import Misconfigured
from streamkit.testing.broker.jars import kafka_version
from streamkit.testing.broker.kept_data import MARK, Mark, take_folder
from streamkit.testing.broker.node import PortHold
from streamkit.testing.broker.settings import BrokerNode, write_node


def files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(folder: Path, nodes: int = 1) -> Misconfigured:
    """The error, after making sure that nothing was changed in the folder and that it is free again."""
    before = files(folder)
    for _ in range(2):
        with pytest.raises(Misconfigured) as caught:
            take_folder(folder, nodes)
    after = files(folder)
    after.pop(str(folder / "lock"), None)
    before.pop(str(folder / "lock"), None)
    assert after == before
    assert str(folder) in caught.value.where
    assert "--data" in caught.value.hint
    return caught.value


def write_mark(folder: Path, **fields: object) -> None:
    mark = {"kafka": kafka_version(), "nodes": 1, "cluster_id": "c"} | fields
    (folder / MARK).write_bytes(msgspec.json.encode(mark))


@pytest.mark.parametrize("name", ["", "not/yet"])
def test_an_empty_folder_begins_a_cluster_and_the_next_run_goes_on_with_it(tmp_path: Path, name: str) -> None:
    first = take_folder(tmp_path / name, 3)
    first.release()
    second = take_folder(tmp_path / name, 3)
    assert second.cluster_id == first.cluster_id
    assert second.folder == tmp_path / name
    mark = msgspec.json.decode((tmp_path / name / MARK).read_bytes(), type=Mark)
    assert mark == Mark(kafka_version(), 3, first.cluster_id)
    second.release()


def test_a_folder_is_one_brokers_at_a_time(tmp_path: Path) -> None:
    held = take_folder(tmp_path, 1)
    assert "another broker runs" in refused(tmp_path).problem
    held.release()
    take_folder(tmp_path, 1).release()


def test_a_start_that_ended_after_its_first_file_is_begun_again(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    take_folder(tmp_path, 1).release()


def test_files_of_something_else_are_named_and_left_alone(tmp_path: Path) -> None:
    for name in "abcdefg":
        (tmp_path / name).write_text(name)
    error = refused(tmp_path)
    assert "holds something else" in error.problem
    assert error.detail == "a, b, c, d, e and 2 more"
    assert not (tmp_path / "lock").exists()


def test_data_of_another_kafka_is_not_touched(tmp_path: Path) -> None:
    write_mark(tmp_path, kafka="3.9.0")
    assert f"is of Kafka 3.9.0, and this is Kafka {kafka_version()}" in refused(tmp_path).problem


def test_data_of_another_number_of_nodes_is_told_with_the_number(tmp_path: Path) -> None:
    write_mark(tmp_path, nodes=3)
    error = refused(tmp_path, nodes=1)
    assert "that of 3 nodes, and this broker has 1 node" in error.problem
    assert "--nodes 3" in error.hint


@pytest.mark.parametrize("content", [b"", b"{", b'{"kafka": 4}', b'{"more": 1}'])
def test_a_mark_that_cannot_be_read_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MARK).write_bytes(content)
    assert "nobody can tell whose data this is" in refused(tmp_path).problem


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Misconfigured, match="no data can be kept") as caught:
        take_folder(tmp_path / "file", 1)
    assert caught.value.where == str(tmp_path / "file")


def test_data_that_is_whole_is_not_written_again_and_half_of_it_is(tmp_path: Path) -> None:
    write_node(BrokerNode(1, 1, 2, tmp_path), {"a": "1"}, "cluster", b"checkpoint")
    meta = tmp_path / "data" / "meta.properties"
    (tmp_path / "data" / "bootstrap.checkpoint").write_bytes(b"newer")
    before = meta.read_text()
    node = BrokerNode(1, 3, 4, tmp_path)
    write_node(node, {"a": "2"}, "other", b"checkpoint")
    assert meta.read_text() == before
    assert (tmp_path / "data" / "bootstrap.checkpoint").read_bytes() == b"newer"
    assert node.properties.read_text() == "a=2\n"
    meta.unlink()
    write_node(node, {"a": "2"}, "other", b"checkpoint")
    assert "cluster.id=other" in meta.read_text()
    assert (tmp_path / "data" / "bootstrap.checkpoint").read_bytes() == b"checkpoint"


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_a_port_where_somebody_listens_is_taken(address: str) -> None:
    with socket.create_server((address, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"port {port} of 127.0.0.1 is taken") as caught:
            PortHold(port)
        assert "--port" in caught.value.hint
    hold = PortHold(port)
    assert hold.port == port
    hold.release()
