from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ConfigError, ReplicaError
from replica.options.config import FIRST_RANDOM_SERVER_ID, OPTIONS, Endpoint, ReplicaConfig, variables_of

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-nobody-knows"


def config(**options: object) -> ReplicaConfig:
    return ReplicaConfig.parse({"user": "repl", **options})


def refused(**options: object) -> str:
    with pytest.raises(ConfigError) as caught:
        config(**options)
    return str(caught.value)


def test_defaults_need_only_a_user() -> None:
    made = config()
    assert made.endpoints == (Endpoint("127.0.0.1", 3306),)
    assert made.tls_mode == "disabled"
    assert made.read_password() == ""
    assert made.server_id >= FIRST_RANDOM_SERVER_ID


def test_random_server_ids_differ_between_replicas_and_survive_pickling() -> None:
    ids = {config().server_id for _ in range(20)}
    assert len(ids) == 20
    made = config()
    assert pickle.loads(pickle.dumps(made)).server_id == made.server_id  # noqa: S301


@pytest.mark.parametrize("spelling", ["relay_dir", "relay-dir", "relayDir", "relaydir", "RELAY_DIR"])
def test_options_have_one_name_in_any_spelling(spelling: str, tmp_path: Path) -> None:
    assert config(**{spelling: str(tmp_path)}).relay_dir == tmp_path


def test_units_may_be_left_out_of_the_name() -> None:
    assert config(connectTimeout="500ms").connect_timeout_s == 0.5
    assert config(heartbeat="1m").heartbeat_s == 60.0
    assert config(net_write_timeout="2d").net_write_timeout_s == 172_800


def test_unknown_option_is_named_with_the_nearest_known_one() -> None:
    text = refused(relayDirectory="/x")
    assert "'relayDirectory'" in text
    assert "relay_dir" in text


def test_unknown_option_without_a_near_one_lists_them_all() -> None:
    text = refused(zzzzzz=1)
    assert "'zzzzzz'" in text
    assert "heartbeat_s" in text


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"user": ""}, "user"),
        ({"port": 0}, "port"),
        ({"port": "many"}, "port"),
        ({"server_id": 1 << 32}, "server_id"),
        ({"relay_max_bytes": "lots"}, "500k"),
        ({"relay_max_bytes": "0"}, "relay_max_bytes"),
        ({"heartbeat": "fast"}, "10s"),
        ({"heartbeat": "9999999h"}, "heartbeat_s"),
        ({"tls": "preferred"}, "verify-identity"),
        ({"host": "a b"}, "'a b'"),
        ({"host": "db1,,db2"}, "''"),
        ({"host": "db1:99999"}, "65535"),
        ({"tls": "disabled", "tls_ca": "/ca.pem"}, "tls=disabled"),
        ({"tls": "required", "tls_ca": "/ca.pem"}, "verify-identity"),
        ({"tls_cert": "/c.pem"}, "tls_key"),
        ({"host": "db1", "unix_socket": "/s"}, "exclude"),
        ({"password": "x", "password_file": "/p"}, "exclude"),
        ({"ack_policy": "never"}, "fsync"),
        ({"backoff_initial": "31s"}, "backoff_max_s"),
        ({"net_write_timeout": "500ms"}, "net_write_timeout_s"),
    ],
)
def test_bad_values_are_refused_by_name(options: dict[str, object], word: str) -> None:
    assert word in refused(**options)


def test_a_missing_user_is_named() -> None:
    with pytest.raises(ConfigError, match="option user"):
        ReplicaConfig.parse({})


def test_hosts_in_turn_with_ports_and_addresses() -> None:
    made = config(host="db1, db2:3307,[::1]:3308,fe80::1", port=3400)
    assert made.endpoints == (
        Endpoint("db1", 3400),
        Endpoint("db2", 3307),
        Endpoint("::1", 3308),
        Endpoint("fe80::1", 3400),
    )
    assert [str(e) for e in made.endpoints] == ["db1:3400", "db2:3307", "[::1]:3308", "[fe80::1]:3400"]


def test_a_unix_socket_is_the_only_endpoint() -> None:
    (endpoint,) = config(unix_socket="/run/mysqld.sock").endpoints
    assert str(endpoint) == "/run/mysqld.sock"


def test_tls_verifies_when_an_authority_is_given() -> None:
    assert config(tls_ca="/ca.pem").tls_mode == "verify-identity"
    assert config(tls_ca="/ca.pem", tls="verify-ca").tls_mode == "verify-ca"
    assert config(tls_cert="/c", tls_key="/k").tls_mode == "required"


def test_the_password_shows_nowhere(tmp_path: Path) -> None:
    made = config(password=SECRET)
    assert made.read_password() == SECRET
    assert SECRET not in f"{made!r} {made} {made.model_dump_json()}"
    assert SECRET not in refused(password=SECRET, port="x")
    assert SECRET not in refused(password=[SECRET])


def test_the_password_file_is_read_at_each_login(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("first\r\nignored\n")
    made = config(password_file=path)
    assert made.read_password() == "first"
    path.write_text("rötated ")
    assert made.read_password() == "rötated "


def test_an_unreadable_password_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="password_file"):
        config(password_file=tmp_path / "missing").read_password()


def test_a_file_gives_options_and_overrides_win(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text('host = "db1"\nuser = "repl"\nrelay_max_bytes = "1g"\nport = 3307\n')
    made = ReplicaConfig.from_file(path, {"port": "3308"})
    assert (made.endpoints, made.relay_max_bytes) == ((Endpoint("db1", 3308),), 1 << 30)
    path.write_text("host = ")
    with pytest.raises(ConfigError, match=r"replica\.toml"):
        ReplicaConfig.from_file(path, {})


def test_a_file_may_list_hosts_and_has_no_sections(tmp_path: Path) -> None:
    path = tmp_path / "replica.toml"
    path.write_text('host = ["db1", "db2:3307"]\nuser = "repl"\nserver_id = 7\nsemi_sync = true\nheartbeat = 2.5\n')
    made = ReplicaConfig.from_file(path, {})
    assert made.endpoints == (Endpoint("db1", 3306), Endpoint("db2", 3307))
    assert (made.server_id, made.semi_sync, made.heartbeat_s) == (7, True, 2.5)
    path.write_text('[replica]\nuser = "repl"\n')
    with pytest.raises(ConfigError, match=r"section \[replica\]"):
        ReplicaConfig.from_file(path, {})


def test_what_is_wrong_is_told_with_where_it_came_from() -> None:
    with pytest.raises(ConfigError, match=r"option port \(--port\): "):
        ReplicaConfig.parse({"user": "u", "port": "x"}, sources={"port": "--port"})
    with pytest.raises(ConfigError, match=r"unknown option 'prot' \(replica.toml\)"):
        ReplicaConfig.parse({"user": "u", "prot": "1"}, sources={"prot": "replica.toml"})


def test_every_spelling_leads_to_the_name() -> None:
    assert ReplicaConfig.name_of("netWriteTimeout") == "net_write_timeout_s"
    assert ReplicaConfig.name_of("net-write-timeout-s") == "net_write_timeout_s"
    assert ReplicaConfig.name_of("net_write") is None


def test_the_environment_names_options_in_capitals() -> None:
    found = variables_of(OPTIONS)
    assert found["MARIADB_REPLICA_PASSWORD"] == "password"
    assert found["MARIADB_REPLICA_HEARTBEAT_S"] == found["MARIADB_REPLICA_HEARTBEAT"] == "heartbeat_s"
    assert set(found.values()) == set(OPTIONS)


def test_every_option_has_a_help_text() -> None:
    assert all(len(text) > 20 for text in OPTIONS.values())
    assert set(OPTIONS) == set(ReplicaConfig.model_fields)


@given(st.dictionaries(st.text(max_size=12), st.text(max_size=12), max_size=4))
def test_any_options_are_taken_or_refused_by_our_error(options: dict[str, str]) -> None:
    try:
        made = ReplicaConfig.parse(options)
    except ReplicaError:
        return
    assert made.user


@given(st.text(max_size=40))
def test_any_host_text_is_taken_or_refused_by_our_error(text: str) -> None:
    try:
        endpoints = config(host=text).endpoints
    except ConfigError:
        return
    assert all(e.host and 1 <= e.port <= 65_535 for e in endpoints)
