from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.commands.arguments import add_home_file, warn_of_exposed_files
from replica.options.config import ReplicaConfig

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".my.cnf").write_text("[client]\nuser=me\npassword=hidden\n")
    (tmp_path / ".my.cnf").chmod(0o600)
    return tmp_path


def test_the_users_file_is_read_when_nobody_says_who(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    values: dict[str, object] = {"host": "db1"}
    sources: dict[str, str] = {}
    add_home_file(values, sources)
    assert values["defaults_file"] == home / ".my.cnf"
    assert "neither user nor password" in capsys.readouterr().err
    assert ReplicaConfig.parse(values).user == "me"


@pytest.mark.parametrize("name", ["user", "password", "password_file", "defaults_file"])
def test_and_not_when_somebody_does(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    values: dict[str, object] = {name: "given"}
    add_home_file(values, {})
    assert values == {name: "given"}
    assert capsys.readouterr().err == ""


def test_nor_when_there_is_none(home: Path) -> None:
    (home / ".my.cnf").unlink()
    values: dict[str, object] = {}
    add_home_file(values, {})
    assert values == {}


def test_files_that_others_can_read_are_named(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = home / ".my.cnf"
    config = ReplicaConfig.parse({"defaults_file": mine})
    warn_of_exposed_files(config, {})
    assert capsys.readouterr().err == ""
    mine.chmod(0o644)
    warn_of_exposed_files(config, {})
    told = capsys.readouterr().err
    assert str(mine) in told
    assert "hidden" not in told
    mine.write_text("[client]\nuser=me\n")
    warn_of_exposed_files(config, {})
    assert capsys.readouterr().err == "", "without a password in it there is nothing to hide"


def test_so_is_a_configuration_file_with_the_password(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "replica.toml").write_text("user = 'u'\npassword = 'hidden'\n")
    (home / "replica.toml").chmod(0o644)
    warn_of_exposed_files(ReplicaConfig.parse({"user": "u"}), {"password": str(home / "replica.toml")})
    assert "replica.toml" in capsys.readouterr().err
    warn_of_exposed_files(ReplicaConfig.parse({"user": "u"}), {"password": "MARIADB_REPLICA_PASSWORD"})
    assert capsys.readouterr().err == ""
