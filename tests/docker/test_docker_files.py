"""The container files, read as Docker would read them: what they name exists, and what they start can be parsed."""

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from streamkit.cli.command import command_line
from streamkit.cli.load import load_pipeline
from streamkit.config import Settings
from streamkit.runtime.agree import DISAGREEMENT_S

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docker"
OURS = ("topics", "worker")


class Instruction(NamedTuple):
    word: str
    rest: str


def read_dockerfile() -> list[Instruction]:
    text = re.sub(r"^\s*#.*\n", "", (FOLDER / "Dockerfile").read_text(), flags=re.MULTILINE)
    joined = re.sub(r"\\\n", " ", text)
    lines = (line.strip() for line in joined.splitlines() if line.strip())
    return [Instruction(*line.split(maxsplit=1)) for line in lines]


def rest_of(word: str) -> list[str]:
    return [each.rest for each in read_dockerfile() if each.word == word]


def read_compose() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
    return loaded


def parse(tokens: list[str], environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return command_line().parse_args(tokens, exit_on_error=False, print_error=False)


def test_every_image_has_a_version() -> None:
    images = [each["image"] for each in read_compose()["services"].values()]
    images += [line.partition("=")[2] for line in rest_of("ARG") if "IMAGE" in line]
    assert images
    for image in images:
        _, _, tag = image.rpartition("/")[2].partition(":")
        assert tag, image
        assert "latest" not in tag, image
        assert any(letter.isdigit() for letter in tag), image


def test_every_stage_is_built_on_the_argument_or_an_earlier_stage() -> None:
    assert all(line.split()[0] == "${PYTHON_IMAGE}" for line in rest_of("FROM"))
    assert any("python:3.11-slim" in line for line in rest_of("ARG"))


def test_every_copied_path_exists_and_reaches_the_builder() -> None:
    ignored = (ROOT / ".dockerignore").read_text().split()
    copies = [line for line in rest_of("COPY") if not line.startswith("--from=")]
    for line in copies:
        *sources, _target = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source
            assert source.rstrip("/") not in ignored, source


def test_the_package_can_be_built_from_what_is_copied() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    copied = " ".join(rest_of("COPY"))
    assert 'readme = "README.md"' in project
    for needed in ("pyproject.toml", "README.md", "LICENSE", "streamkit/"):
        assert needed in copied


def test_the_image_runs_as_somebody_without_rights() -> None:
    user = rest_of("USER")[-1]
    uid = user.split(":")[0]
    assert uid.isdigit()
    assert int(uid) >= 10_000
    words = [each.word for each in read_dockerfile()]
    assert "RUN" not in words[words.index("USER") :]


def test_no_cache_and_no_build_tool_stays_in_the_image() -> None:
    instructions = read_dockerfile()
    last = max(place for place, each in enumerate(instructions) if each.word == "FROM")
    assert any(each.word == "ENV" and "PIP_NO_CACHE_DIR=1" in each.rest for each in instructions[:last])
    assert not any("pip" in each.rest for each in instructions[last:] if each.word == "RUN")


def test_entrypoint_and_healthcheck_are_commands_that_the_cli_can_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environment = {"STREAMKIT_PIPELINE": "services.page_views.pipeline:page_views"}
    entry, default = json.loads(rest_of("ENTRYPOINT")[0]), json.loads(rest_of("CMD")[0])
    health = json.loads(rest_of("HEALTHCHECK")[0].partition("CMD ")[2])
    assert entry == ["streamkit"]
    assert health[0] == "streamkit"
    assert parse(default, environment, monkeypatch)[0].__name__ == "run"
    assert parse(health[1:], environment, monkeypatch)[0].__name__ == "check"


def test_the_health_check_may_look_at_a_disagreement_to_its_end() -> None:
    (health,) = rest_of("HEALTHCHECK")
    found = re.search(r"--timeout=(\d+)s", health)
    assert found is not None
    assert int(found[1]) >= DISAGREEMENT_S + 2 * Settings().request_timeout_s


def test_ports_are_open_on_the_loopback_alone() -> None:
    for service in read_compose()["services"].values():
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), port
        assert service.get("network_mode") != "host"


def test_our_services_have_no_rights_and_write_nowhere_but_their_volume() -> None:
    compose = read_compose()
    for name in OURS:
        service = compose["services"][name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert "no-new-privileges:true" in service["security_opt"]
        assert "privileged" not in service
        assert "user" not in service
        assert any(each.startswith("/tmp") for each in service["tmpfs"])
    worker = compose["services"]["worker"]
    assert worker["volumes"] == ["state:/var/lib/streamkit"]
    assert any("STREAMKIT_STATE_DIR=/var/lib/streamkit" in line for line in rest_of("ENV"))
    assert set(compose["volumes"]) == {"kafka", "state"}


def test_services_are_built_from_files_that_exist() -> None:
    for name in OURS:
        build = read_compose()["services"][name]["build"]
        context = (FOLDER / build["context"]).resolve()
        assert context == ROOT
        assert (context / build["dockerfile"]).is_file()


def test_every_service_says_when_it_is_healthy_and_waits_for_those_it_needs() -> None:
    services = read_compose()["services"]
    assert all("healthcheck" in service for service in services.values())
    assert services["topics"]["depends_on"] == {"broker": {"condition": "service_healthy"}}
    assert services["worker"]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}
    assert services["worker"]["deploy"]["replicas"] == 2


def test_the_commands_of_the_services_can_be_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    services = read_compose()["services"]
    expected = {"topics": "apply", "worker": "run"}
    for name in OURS:
        command = services[name]["command"]
        tokens = shlex.split(command) if isinstance(command, str) else command
        function, bound, rest = parse(tokens, services[name]["environment"], monkeypatch)
        assert function.__name__ == expected[name]
        assert not rest
        if name == "topics":
            assert bound.arguments["execute"] is True
        assert bound.arguments["cluster"].brokers == "broker:19092"
    health = services["worker"]["healthcheck"]["test"]
    assert health[:2] == ["CMD", "streamkit"]
    assert parse(health[2:], {}, monkeypatch)[0].__name__ == "check"


def test_the_pipeline_of_the_worker_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    target = read_compose()["services"]["worker"]["environment"]["STREAMKIT_PIPELINE"]
    assert load_pipeline(target).plan().stages


def test_the_broker_has_its_own_listener_for_each_road() -> None:
    environment = read_compose()["services"]["broker"]["environment"]
    listeners = dict(each.split("://", 1) for each in environment["KAFKA_LISTENERS"].split(","))
    advertised = dict(each.split("://", 1) for each in environment["KAFKA_ADVERTISED_LISTENERS"].split(","))
    protocols = dict(
        each.split(":") for each in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(",")
    )
    assert set(listeners) == set(protocols) == {"INTERNAL", "EXTERNAL", "CONTROLLER"}
    assert advertised == {"INTERNAL": "broker:19092", "EXTERNAL": "127.0.0.1:9092"}
    assert environment["KAFKA_INTER_BROKER_LISTENER_NAME"] == "INTERNAL"
    assert environment["KAFKA_CONTROLLER_LISTENER_NAMES"] == "CONTROLLER"
