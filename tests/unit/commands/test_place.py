from __future__ import annotations

from pathlib import Path

import pytest

from replica.commands.arguments import LogChoice, find_place
from replica.errors import ConfigError


def place(
    line: dict[str, object], variables: dict[str, str], file: Path | None = None, *, direct: bool = False
) -> LogChoice:
    return find_place(line, variables, file, direct=direct)


@pytest.fixture(autouse=True)
def _no_home_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


def test_a_relay_directory_wins_over_a_connection() -> None:
    found = place({"user": "repl"}, {"MARIADB_REPLICA_RELAY_DIR": "/relay"})
    assert found.relay_dir == Path("/relay")
    assert found.connects
    assert found.config().user == "repl"


def test_unless_the_primary_is_asked_for() -> None:
    variables = {"MARIADB_REPLICA_RELAY_DIR": "/relay", "MARIADB_REPLICA_USER": "repl"}
    assert place({}, variables, direct=True).relay_dir is None


def test_a_relay_directory_needs_no_account() -> None:
    found = place({"relay_dir": "/relay"}, {})
    assert not found.connects


def test_a_daemons_file_serves_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "replica.toml"
    file.write_text('host = "db1"\nuser = "repl"\nrelay_dir = "/relay"\nretain_bytes = "1g"\nhttp_listen = ":9306"\n')
    found = place({}, {}, file)
    assert found.relay_dir == Path("/relay")
    assert found.config().host == ("db1",)
    assert place({"host": "db2"}, {}, file).config().host == ("db2",)


def test_contradictions_and_nothing() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        place({"relay_dir": "/relay"}, {}, direct=True)
    with pytest.raises(ConfigError, match="neither a relay log nor a primary is given"):
        place({}, {}).config()
    with pytest.raises(ConfigError, match="Did you mean"):
        place({}, {"MARIADB_REPLICA_RELAYDIR_": "/relay"})


def test_a_host_alone_takes_the_account_of_the_users_own_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".my.cnf").write_text("[client]\nuser=me\npassword=hidden\n")
    (tmp_path / ".my.cnf").chmod(0o600)
    assert place({"host": "db1"}, {}).config().user == "me"
    assert "hidden" not in capsys.readouterr().err
