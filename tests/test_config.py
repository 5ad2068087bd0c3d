import asyncio
import math
import re
from pathlib import Path

import pytest
from aiokafka.errors import SaslAuthenticationFailed
from msgspec import inspect

import streamkit
from streamkit.config import OTHER_VARIABLES, Secret, Security, Settings
from streamkit.errors import Misconfigured
from streamkit.kafka.connection import Connection
from streamkit.kafka.refusal import judge


def test_what_is_given_wins_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('brokers = "file:9092"\ncommit_interval_s = 0.5\nstate_dir = "from-file"\n')
    environment = {"STREAMKIT_BROKERS": "env:9092", "STREAMKIT_COMMIT_INTERVAL_S": "0.25"}
    settings = Settings.load(file, environment, brokers="given:9092", store=None)
    assert (settings.brokers, settings.commit_interval_s, settings.state_dir) == (
        "given:9092",
        0.25,
        "from-file",
    )
    assert settings.store == "rocksdb"


def test_a_key_that_is_no_setting_is_named(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("comit_interval_s = 0.5\n")
    with pytest.raises(Misconfigured) as refused:
        Settings.load(file, {})
    assert "comit_interval_s" in refused.value.problem
    assert "commit_interval_s" in refused.value.hint


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("COMMIT_INTERVAL_S", "soon", 'is "soon"; it must be a number of seconds between 0 and 2147483'),
        ("SLICE_RECORDS", "abc", 'is "abc"; it must be a whole number between 1 and 1000000'),
        ("SLICE_RECORDS", "0", 'is "0"; it must be a whole number between 1 and 1000000'),
        ("SLICE_RECORDS", "9" * 5000, "it must be a whole number between 1 and 1000000"),
        ("METRICS_PORT", "99999", 'is "99999"; it must be a whole number between 1 and 65535'),
        ("SPAN_BYTES_MAX", "0", 'is "0"; it must be a whole number of bytes between 1 and 2147483647'),
        ("LOCAL_SHUFFLE", "no", 'is "no"; it must be true or false'),
        ("STORE", "rocks", 'is "rocks"; it must be "memory" or "rocksdb"'),
        (
            "SECURITY_PROTOCOL",
            "TLS",
            'is "TLS"; it must be "PLAINTEXT", "SASL_PLAINTEXT", "SASL_SSL" or "SSL"',
        ),
    ],
)
def test_a_value_that_cannot_be_is_told_with_its_variable_and_with_what_can(variable, value, told):
    with pytest.raises(Misconfigured) as refused:
        Settings.load(None, {f"STREAMKIT_{variable}": value})
    assert refused.value.problem.startswith(f"STREAMKIT_{variable} is ")
    assert told in refused.value.problem
    assert len(refused.value.problem) < 200


def test_a_choice_that_is_nearly_right_is_told_with_the_nearest():
    with pytest.raises(Misconfigured) as refused:
        Settings.load(None, {"STREAMKIT_STORE": "rocks"})
    assert refused.value.hint == "did you mean rocksdb?"
    with pytest.raises(Misconfigured, match=r'^guarantee is "exactly-once"'):
        Settings.load(None, {}, guarantee="exactly-once")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("slice_records = 0", "slice_records is 0; it must be a whole number between 1 and 1000000"),
        ("state_dir = 3", "state_dir is 3; it must be text"),
        ("local_shuffle = 'off'", 'local_shuffle is "off"; it must be true or false'),
        ("security = 'TLS'", 'security is "TLS"; it must be a table'),
        ("[security]\nprotocol = 'TLS'", 'security.protocol is "TLS"; it must be'),
    ],
)
def test_a_value_in_a_file_is_told_with_its_key_and_the_file(tmp_path, content, told):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    with pytest.raises(Misconfigured) as refused:
        Settings.load(file, {})
    assert told in refused.value.problem
    assert refused.value.where == str(file)


NUMBERS = [
    each.name
    for each in inspect.type_info(Settings).fields
    if "IntType" in str(each) or "FloatType" in str(each)
]


@pytest.mark.parametrize("field", NUMBERS)
def test_every_number_has_bounds_and_nothing_outside_of_them_is_taken(field, tmp_path):
    """A new setting without bounds fails here: text from a variable, a key in a file and the constructor alike."""
    file = tmp_path / "settings.toml"
    for value in (math.nan, math.inf, -math.inf, -1, -0.001, 1e30):
        with pytest.raises(Misconfigured, match=f"^STREAMKIT_{field.upper()} is .* between"):
            Settings.load(None, {f"STREAMKIT_{field.upper()}": str(value)})
        file.write_text(f"{field} = {value}")
        with pytest.raises(Misconfigured, match=f"^{field} is .* between"):
            Settings.load(file, {})
        with pytest.raises(Misconfigured, match=f"^{field} is .* between"):
            Settings(**{field: value})


def test_the_numbers_by_default_are_many_and_within_bounds():
    assert len(NUMBERS) >= 20
    Settings.load(None, {})


def test_zero_is_refused_where_nothing_would_ever_come_about():
    for field in (
        "slice_records",
        "span_bytes_max",
        "processing_max_s",
        "session_timeout_s",
        "drain_timeout_s",
    ):
        with pytest.raises(Misconfigured, match=f"^{field} is 0; it must be"):
            Settings(**{field: 0})


def test_a_key_of_the_security_is_overlaid_and_not_the_whole_table(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[security]\nprotocol = 'SASL_SSL'\nusername = 'bob'\n")
    found = Settings.load(file, {"STREAMKIT_SECURITY_USERNAME": "ann"})
    assert found.security == Security(protocol="SASL_SSL", username="ann")


@pytest.mark.parametrize(
    ("content", "name", "meant"),
    [
        ("broker = 'a:1'", "broker", "brokers"),
        ("[security]\nuser = 'a'", "security.user", "security.username"),
        ("[securty]\nusername = 'a'", "securty", "security"),
    ],
)
def test_a_key_of_a_file_that_is_no_setting_is_told_with_the_closest(tmp_path, content, name, meant):
    file = tmp_path / "settings.toml"
    file.write_text(content)
    with pytest.raises(Misconfigured) as refused:
        Settings.load(file, {})
    assert refused.value.problem == f"{name} is not a setting"
    assert refused.value.hint == f"did you mean {meant}?"
    assert refused.value.where == str(file)


def test_a_password_that_is_a_number_is_not_shown_either(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text("[security]\npassword_env = 123456\n")
    with pytest.raises(Misconfigured) as refused:
        Settings.load(file, {})
    assert "password_env" in refused.value.problem
    assert "123456" not in refused.value.render()


def test_a_request_that_may_outlast_its_transaction_is_refused():
    with pytest.raises(Misconfigured, match="request_timeout_s is 10, and transaction_timeout_s is 10"):
        Settings.load(None, {"STREAMKIT_TRANSACTION_TIMEOUT_S": "10"})


def test_files_that_are_missing_or_not_toml_are_clear_errors(tmp_path):
    with pytest.raises(Misconfigured, match="does not exist"):
        Settings.load(tmp_path / "none.toml", {})
    (tmp_path / "bad.toml").write_text("= 3")
    with pytest.raises(Misconfigured, match="is not TOML"):
        Settings.load(tmp_path / "bad.toml", {})


def test_a_secret_does_not_show_itself(monkeypatch):
    monkeypatch.setenv("STREAMKIT_SASL_PASSWORD", "s3cret")
    password = Security().password()
    assert password == "s3cret"
    assert "s3cret" not in repr(password)
    assert "s3cret" not in repr({"password": Secret("s3cret")})
    assert "s3cret" not in repr(Settings.load(None, {"STREAMKIT_SECURITY_USERNAME": "ann"}))


@pytest.mark.parametrize("password", ["s3cret!", "pass word", "hunter2"])
def test_a_password_in_place_of_its_variables_name_is_never_shown(password, tmp_path):
    """The third could be a variable's name; it is not refused, and not shown either."""
    file = tmp_path / "settings.toml"
    file.write_text(f'[security]\nprotocol = "SASL_SSL"\nusername = "ann"\npassword_env = "{password}"\n')
    shown = ""
    try:
        settings = Settings.load(file, {})
        shown += repr(settings) + settings.security.password_place
        asyncio.run(Connection(settings.brokers, settings.security).connect())
    except Misconfigured as error:
        shown += error.render() + str(error) + repr(error)
    assert password not in shown
    assert "password_env" in shown


def test_what_is_surely_the_name_of_a_variable_is_shown(monkeypatch):
    monkeypatch.setenv("KAFKA_PASSWORD", "s3cret")
    for name in ("STREAMKIT_SASL_PASSWORD", "STREAMKIT_PROD_PASSWORD", "KAFKA_PASSWORD"):
        assert name in Security(password_env=name).password_place


def test_a_login_that_is_refused_does_not_show_what_stands_for_the_password():
    security = Security(protocol="SASL_SSL", username="ann", password_env="hunter2")
    refused = judge("a:1", SaslAuthenticationFailed("no"), security)
    assert refused is not None
    assert "hunter2" not in refused.render()


@pytest.mark.parametrize(
    ("variable", "meant"),
    [
        ("STREAMKIT_BROKER", "STREAMKIT_BROKERS"),
        ("STREAMKIT_COMMIT_INTERVAL", "STREAMKIT_COMMIT_INTERVAL_S"),
        ("STREAMKIT_SECURITY_USER", "STREAMKIT_SECURITY_USERNAME"),
        ("STREAMKIT_METRIC_PORT", "STREAMKIT_METRICS_PORT"),
        ("STREAMKIT_LOG", "STREAMKIT_LOGS"),
    ],
)
def test_a_variable_that_is_no_setting_is_named_with_the_closest(variable, meant):
    with pytest.raises(Misconfigured) as refused:
        Settings.load(None, {variable: "s3cret"})
    assert refused.value.problem == f"environment variable {variable} is not a setting"
    assert refused.value.hint == f"did you mean {meant}?"


def test_a_variable_like_no_setting_is_refused_too():
    with pytest.raises(Misconfigured) as refused:
        Settings.load(None, {"STREAMKIT_XYZZY": "1"})
    assert "brokers" in refused.value.hint


def test_variables_that_are_ours_or_of_others_are_left_alone():
    Settings.load(
        None,
        {
            "STREAMKIT_WORKER": "a",
            "STREAMKIT_WORKER_NUMBER": "1",
            "STREAMKIT_SASL_PASSWORD": "x",
            "STREAMKIT_LOGS": "quiet",
            "STREAMKIT_PROD_PASSWORD": "x",
            "STREAMKIT_SECURITY_PASSWORD_ENV": "STREAMKIT_PROD_PASSWORD",
            "STREAMKIT_SERVICE_HOST": "10.0.0.1",
            "STREAMKIT_UI_SERVICE_PORT_HTTP": "80",
            "STREAMKIT_UI_PORT": "tcp://10.0.0.1:80",
            "STREAMKIT_UI_PORT_80_TCP_ADDR": "10.0.0.1",
            "OTHER_BROKER": "x",
        },
    )


def test_every_variable_that_we_read_is_known():
    """A new one must be named in the settings or beside them, or setting it would be refused."""
    settings = {*Settings.__struct_fields__, *(f"security_{each}" for each in Security.__struct_fields__)}
    known = {f"STREAMKIT_{each.upper()}" for each in settings} | OTHER_VARIABLES
    read = set()
    for path in Path(streamkit.__file__).parent.rglob("*.py"):
        read |= set(re.findall(r'"(STREAMKIT_[A-Z_]+[A-Z])"', path.read_text()))
    assert read - known == set()


@pytest.mark.parametrize(
    "brokers",
    ["host:abc", "host:0", "host:70000", "host:", "", " , ", "http://host:9092", "a:9092;b:9092", "a:1, b:x"],
)
def test_addresses_that_nobody_could_connect_to_are_refused(brokers):
    with pytest.raises(Misconfigured) as refused:
        Settings.load(None, {}, brokers=brokers)
    assert refused.value.problem == "brokers cannot be read as addresses"
    assert "host:port" in refused.value.hint


@pytest.mark.parametrize(
    "brokers", ["kafka", "kafka:9092", "a:1,b:2", "a:1, b:2", "[::1]:9092", "10.0.0.1:9092"]
)
def test_addresses_of_all_forms_are_taken(brokers):
    assert Settings.load(None, {}, brokers=brokers).brokers == brokers


def test_security_comes_from_the_environment_too():
    settings = Settings.load(
        None, {"STREAMKIT_SECURITY_PROTOCOL": "SASL_SSL", "STREAMKIT_SECURITY_USERNAME": "ann"}
    )
    assert settings.security == Security(protocol="SASL_SSL", username="ann")
