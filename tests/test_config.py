import pytest

from streamkit.config import Secret, Security, Settings
from streamkit.errors import Misconfigured


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


def test_a_value_of_the_wrong_type_is_named_with_its_path():
    with pytest.raises(Misconfigured, match=r"\$\.commit_interval_s"):
        Settings.load(None, {"STREAMKIT_COMMIT_INTERVAL_S": "soon"})
    with pytest.raises(Misconfigured, match=r"\$\.guarantee"):
        Settings.load(None, {}, guarantee="exactly-once")


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


def test_security_comes_from_the_environment_too():
    settings = Settings.load(
        None, {"STREAMKIT_SECURITY_PROTOCOL": "SASL_SSL", "STREAMKIT_SECURITY_USERNAME": "ann"}
    )
    assert settings.security == Security(protocol="SASL_SSL", username="ann")
