"""The commands against a real broker, as a person types them."""

import json

import pytest
from confluent_kafka import Producer

from streamkit.testing.broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300)]


def produce(brokers: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": brokers})
    for number in range(count):
        producer.produce(topic, json.dumps({"page": f"page-{number % 3}"}).encode(), str(number).encode())
    assert producer.flush(30) == 0


def test_topics_from_plan_to_refusal(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    planned = space.run("topics", "plan", "--exit-code", "--output", "json")
    assert planned.returncode == 3
    assert {each["topic"] for each in json.loads(planned.stdout)["create"]} == {space.views, space.counts}

    shown = space.run("topics", "apply")
    assert shown.returncode == 0
    assert f"+ create {space.views}  2 partitions" in shown.stdout
    assert "add --execute" in shown.stderr
    assert space.run("topics", "plan", "--exit-code").returncode == 3

    assert space.run("topics", "apply", "--execute").returncode == 0
    settled = space.run("topics", "plan", "--exit-code")
    assert (settled.returncode, settled.stdout) == (0, "= 2 topics are as declared\n")

    space.declare(space.views, "partitions = 1")
    space.declare(space.counts, "partitions = 3\n[config]\ncleanup.policy = 'compact'\nretention.ms = 60000")
    refused = space.run("topics", "apply", "--execute", "--pipeline", space.target)
    assert refused.returncode == 1
    assert f"✗ refuse {space.views}" in refused.stdout
    assert "Kafka cannot take partitions away" in refused.stderr
    assert f"grow   {space.counts}" in refused.stdout
    described = json.loads(space.run("topics", "describe", space.counts, "-o", "json").stdout)
    assert len(described["partitions"]) == 2  # nothing at all was changed

    space.declare(space.counts, "partitions = 2\n[config]\nretenton.ms = 60000")
    unknown = space.run("topics", "plan")
    assert unknown.returncode == 1
    assert 'has the config key "retenton.ms", which Kafka does not know' in unknown.stdout
    assert "hint: did you mean retention.ms?" in unknown.stdout

    listed = json.loads(space.run("topics", "list", "--output", "json").stdout)["topics"]
    assert {"topic": space.views, "owner": ""}.items() <= {each["topic"]: each for each in listed}[
        space.views
    ].items()


def test_check_finds_what_is_missing_and_then_nothing(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    missing = space.run("check", space.target)
    assert missing.returncode == 1
    assert f'✗ error[SK500]: topic "{space.views}" does not exist' in missing.stdout
    assert "hint" in missing.stdout
    assert f"✓ broker {space.brokers}" in missing.stdout
    assert not (space.folder / ".streamkit").exists()  # looking changed nothing

    stopped = space.run("run", space.target, "--workers", "2", STREAMKIT_LOGS="quiet")
    assert stopped.returncode == 1
    assert f'topic "{space.views}" does not exist' in stopped.stderr

    assert space.run("topics", "apply", "--execute").returncode == 0
    good = space.run("check", space.target, "--output", "json")
    assert good.returncode == 0
    report = json.loads(good.stdout)
    assert report["good"]
    created = [each for each in report["findings"] if "will be created" in each["detail"]]
    assert len(created) == 4  # one shuffle, two changelogs, the dead letters

    file = space.folder / "file"
    file.touch()
    unwritable = space.run("check", space.target, "--state-dir", str(file / "state"))
    assert unwritable.returncode == 1
    assert "cannot be written to" in unwritable.stdout
    assert "✓ broker" in unwritable.stdout

    wrong_port = space.run("check", space.target, "--brokers", "127.0.0.1:9")
    assert wrong_port.returncode == 1
    assert "✗ error[SK120]: " in wrong_port.stdout
    assert "127.0.0.1:9" in wrong_port.stdout


def test_a_run_on_an_unwritable_state_folder_is_told(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    (space.folder / "file").touch()
    for workers in ("1", "2"):
        done = space.run(
            "run", space.target, "--state-dir", "file/state", "--workers", workers, STREAMKIT_LOGS="quiet"
        )
        assert done.returncode == 1
        assert "cannot be written to" in done.stderr


def test_offsets_of_a_topic_that_does_not_exist_are_refused_in_the_words_of_check(
    make_workspace, kafka_broker: Broker
) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    checked = space.run("check", space.target, "-o", "json")
    found = next(each for each in json.loads(checked.stdout)["findings"] if space.views in each["what"])
    for output in ("table", "json"):
        done = space.run("offsets", "show", space.target, "-o", output)
        assert done.returncode == checked.returncode == 1
        assert f"error[{found['code']}]: {found['what']}" in done.stderr
        assert found["hint"] in done.stderr
        assert "0 records" not in done.stdout
    report = json.loads(done.stdout)
    assert (report["missing"], report["lag_records"]) == ([space.views], None)


def test_positions_can_be_set_before_the_first_start(make_workspace, kafka_broker: Broker) -> None:
    space = make_workspace(kafka_broker.bootstrap)
    assert space.run("topics", "apply", "--execute").returncode == 0
    produce(space.brokers, space.views, 10)
    before = json.loads(space.run("offsets", "show", space.target, "-o", "json").stdout)
    assert (before["lag_records"], before["members"]) == (10, 0)

    planned = space.run("offsets", "reset", space.target, "--to", "latest")
    assert planned.returncode == 0
    assert "nothing was changed" in planned.stderr
    assert json.loads(space.run("offsets", "show", space.target, "-o", "json").stdout)["lag_records"] == 10

    done = space.run("offsets", "reset", space.target, "--to", "latest", "--execute", "-o", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["executed"] is True
    after = json.loads(space.run("offsets", "show", space.target, "-o", "json").stdout)
    assert after["lag_records"] == 0
