from __future__ import annotations

import dataclasses

import pytest

from replica.commands.check.server import Us, basics, binlog
from tests.unit.commands.check.facts import GOOD, config, info, variables

US = Us(77, configured=True, settled=True, running=False, left_open=frozenset())


def test_what_is_good_is_named_too() -> None:
    assert [one.state for one in basics(GOOD, US)] == ["ok"] * 8
    assert [one.state for one in binlog(GOOD, config())] == ["ok"]


@pytest.mark.parametrize(
    ("field", "value", "check", "state"),
    [
        ("log_bin", False, "log_bin", "missing"),
        ("binlog_format", "MIXED", "binlog_format", "missing"),
        ("may_replicate", False, "grant", "missing"),
        ("server_id", 77, "server_id", "missing"),
        ("binlog_row_image", "MINIMAL", "binlog_row_image", "warning"),
        ("binlog_row_metadata", "NO_LOG", "binlog_row_metadata", "warning"),
        ("binlog_checksum", "NONE", "binlog_checksum", "warning"),
        ("version", "10.4.1-MariaDB", "version", "warning"),
    ],
)
def test_each_basic_setting_is_judged_as_a_connection_would(field: str, value: object, check: str, state: str) -> None:
    (bad,) = [one for one in basics(info(**{field: value}), US) if one.state != "ok"]
    assert (bad.check, bad.state) == (check, state)
    assert bad.fix


def test_an_id_that_is_not_drawn_yet_is_not_shown() -> None:
    (row,) = [one for one in basics(GOOD, US._replace(settled=False)) if one.check == "server_id"]
    assert "77" not in row.what


@pytest.mark.parametrize(
    ("changed", "check", "state", "fix"),
    [
        ({"read_only": "ON"}, "read_only", "note", ""),
        ({"gtid_strict_mode": "OFF"}, "gtid_strict_mode", "note", "SET GLOBAL gtid_strict_mode = ON;"),
        ({"encrypt_binlog": "ON"}, "encrypt_binlog", "note", ""),
        ({"net_buffer_length": "16384"}, "net_buffer_length", "note", "SET GLOBAL net_buffer_length = 131072;"),
        ({"binlog_storage_engine": "innodb"}, "binlog_storage_engine", "warning", "binlog_storage_engine"),
        ({"binlog_annotate_row_events": "OFF"}, "binlog_annotate_row_events", "warning", "SET GLOBAL"),
    ],
)
def test_what_else_shapes_the_log(changed: dict[str, str], check: str, state: str, fix: str) -> None:
    (one,) = [one for one in binlog(variables(**changed), config(annotate=True)) if one.state != "ok"]
    assert (one.check, one.state) == (check, state)
    assert fix in one.fix


def test_statements_that_nobody_asked_for_may_be_missing() -> None:
    assert [one.state for one in binlog(variables(binlog_annotate_row_events="OFF"), config())] == ["ok"]


@pytest.mark.parametrize(
    ("filters", "state", "word"),
    [(("shop", ""), "warning", "only shop is"), (("", "logs"), "warning", "logs is not"), (None, "note", "unknown")],
)
def test_databases_that_are_left_out_of_the_binlog(filters: tuple[str, str] | None, state: str, word: str) -> None:
    (one,) = binlog(dataclasses.replace(GOOD, filters=filters), config())
    assert (one.check, one.state) == ("binlog_do_db", state)
    assert word in one.what


def test_a_replica_that_does_not_log_what_it_replicates() -> None:
    replica = dataclasses.replace(variables(log_slave_updates="OFF"), slave_pos=GOOD.primary.position)
    (one,) = [one for one in binlog(replica, config()) if one.state != "ok"]
    assert one.check == "log_slave_updates"
    assert [one.state for one in binlog(variables(log_slave_updates="OFF"), config())] == ["ok"]


GALERA = {"wsrep_on": True, "wsrep_gtid_mode": True, "wsrep_gtid_domain_id": 7, "gtid_domain_id": 101}


def test_a_galera_node_with_common_gtids_is_told_what_comes_from_it_alone() -> None:
    (note,) = [one for one in binlog(info(**GALERA), config()) if one.check == "wsrep_on"]
    assert note.state == "note"
    assert "domain 7" in note.what
    assert "101" in note.what


@pytest.mark.parametrize(("hosts", "state"), [(1, "warning"), (2, "missing")])
def test_a_galera_node_with_gtids_of_its_own_can_be_the_only_one(hosts: int, state: str) -> None:
    node = info(**{**GALERA, "wsrep_gtid_mode": False})
    (bad,) = [one for one in basics(node, US, hosts) if one.state != "ok"]
    assert (bad.check, bad.state) == ("wsrep_gtid_mode", state)
    assert "wsrep_gtid_mode=ON" in bad.fix
    assert "same server_id" in bad.fix


def test_a_galera_node_that_does_not_log_what_others_write_is_refused() -> None:
    (bad,) = [one for one in basics(info(**GALERA, log_slave_updates=False), US) if one.state != "ok"]
    assert (bad.check, bad.state) == ("log_slave_updates", "missing")
