from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import replica
from replica.commands.arguments import configured, gather, gathered, option_flag
from replica.daemon.config import DaemonConfig
from replica.errors import ConfigError
from replica.options.config import ReplicaConfig


def test_the_command_line_wins_over_the_environment_and_that_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "replica.toml"
    file.write_text('host = "filed"\nuser = "filed"\nrelay-dir = "/filed"\n')
    environment = {"MARIADB_REPLICA_HOST": "surrounding", "MARIADB_REPLICA_USER": "surrounding", "PATH": "/bin"}
    found = gather(DaemonConfig, {"host": "typed", "port": None}, environment, file)
    assert found.values == {"host": "typed", "user": "surrounding", "relay_dir": "/filed"}
    assert found.sources == {"host": "--host", "user": "MARIADB_REPLICA_USER", "relay_dir": str(file)}


def test_a_wrong_value_is_told_with_where_it_comes_from(tmp_path: Path) -> None:
    file = tmp_path / "replica.toml"
    file.write_text('user = "u"\nport = "many"\n')
    found = gather(DaemonConfig, {"heartbeat_s": "fast"}, {"MARIADB_REPLICA_RETAIN_S": "long"}, file)
    with pytest.raises(ConfigError) as caught:
        DaemonConfig.parse(found.values, sources=found.sources)
    for text in (f"port ({file})", "heartbeat_s (--heartbeat)", "retain_s (MARIADB_REPLICA_RETAIN_S)"):
        assert text in caught.value.message


def test_an_unknown_name_in_the_file_is_refused_with_the_nearest_and_the_file(tmp_path: Path) -> None:
    file = tmp_path / "replica.toml"
    file.write_text('user = "u"\nrelay_directory = "/x"\n')
    found = gather(DaemonConfig, {}, {}, file)
    with pytest.raises(ConfigError, match=r"relay_directory.*replica\.toml") as caught:
        DaemonConfig.parse(found.values, sources=found.sources)
    assert "relay_dir?" in caught.value.hint


def test_the_file_of_the_daemon_serves_commands_with_fewer_options(tmp_path: Path) -> None:
    file = tmp_path / "replica.toml"
    file.write_text('user = "u"\nretain_s = "2d"\nhttp_listen = ":9306"\n')
    assert gather(ReplicaConfig, {}, {"MARIADB_REPLICA_RETAIN_BYTES": "1g"}, file).values == {"user": "u"}


@pytest.mark.parametrize("content", ["[replica]\nuser = 'u'\n", "user = ", "\xff"])
def test_a_file_that_is_no_list_of_options_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "replica.toml"
    file.write_bytes(content.encode("latin1"))
    with pytest.raises(ConfigError, match=r"replica\.toml"):
        gather(DaemonConfig, {}, {}, file)


def test_a_misspelt_variable_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="MARIADB_REPLICA_RELAYDIR") as caught:
        gather(DaemonConfig, {}, {"MARIADB_REPLICA_RELAYDIR": "/x"}, None)
    assert "relay_dir" in caught.value.hint


def test_variables_of_other_commands_and_without_the_unit_are_known() -> None:
    given = {"MARIADB_REPLICA_FILE_KEY": "x", "MARIADB_REPLICA_CONFIG": "y", "MARIADB_REPLICA_HEARTBEAT": "3s"}
    found = gather(DaemonConfig, {}, given, None)
    assert found.values == {"heartbeat_s": "3s"}
    assert found.sources == {"heartbeat_s": "MARIADB_REPLICA_HEARTBEAT"}
    both = {**given, "MARIADB_REPLICA_HEARTBEAT_S": "4s"}
    assert gather(DaemonConfig, {}, both, None).values == {"heartbeat_s": "4s"}


def test_every_variable_the_sources_name_is_known() -> None:
    sources = Path(replica.__file__).parent.rglob("*.py")
    named = {name for path in sources for name in re.findall(r'"(MARIADB_REPLICA_[A-Z_]+)"', path.read_text())}
    assert "MARIADB_REPLICA_FILE_KEY" in named
    gather(DaemonConfig, {}, dict.fromkeys(named, "x"), None)


def test_what_kubernetes_says_of_a_service_of_our_name_is_no_option() -> None:
    links = {
        "MARIADB_REPLICA_SERVICE_HOST": "10.0.0.7",
        "MARIADB_REPLICA_SERVICE_PORT": "9306",
        "MARIADB_REPLICA_SERVICE_PORT_METRICS": "9306",
        "MARIADB_REPLICA_PORT": "tcp://10.0.0.7:9306",
        "MARIADB_REPLICA_PORT_9306_TCP": "tcp://10.0.0.7:9306",
        "MARIADB_REPLICA_PORT_9306_TCP_ADDR": "10.0.0.7",
    }
    assert gather(DaemonConfig, {}, links, None).values == {}
    assert gather(DaemonConfig, {}, {"MARIADB_REPLICA_PORT": "3307"}, None).values == {"port": "3307"}


def test_a_command_gets_its_configuration_and_can_ask_where_it_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.command()
    @click.option("--own", default="mine")
    @configured(DaemonConfig)
    def command(config: DaemonConfig, own: str) -> None:
        click.echo(f"{config.user} {config.semi_sync} {own} {gathered().sources}")

    file = tmp_path / "replica.toml"
    file.write_text('user = "filed"\n')
    monkeypatch.setenv("MARIADB_REPLICA_CONFIG", str(file))
    done = CliRunner().invoke(command, ["--semi-sync", "--own", "yours"])
    assert done.output == f"filed True yours {{'user': '{file}', 'semi_sync': '--semi-sync'}}\n"


def test_flags_leave_out_the_unit() -> None:
    assert option_flag("relay_max_file_age_s") == "--relay-max-file-age"
    assert option_flag("relay_dir") == "--relay-dir"
