from __future__ import annotations

import dataclasses

import pytest

from replica.commands.check.server import OtherReplica, Us, connection, privileges, server_ids
from replica.options.config import Endpoint
from tests.unit.commands.check.facts import GOOD, INFO, config, primary

US = Us(77, configured=True, settled=True, running=False, left_open=frozenset())
DB1 = Endpoint("db1", 3306)
OCCUPIED = dataclasses.replace(GOOD, replicas=(OtherReplica(77, "other"), OtherReplica(78, "")))


@pytest.mark.parametrize(
    ("tls", "options", "endpoint", "state"),
    [
        ("TLSv1.3 X", {"tls_ca": "/ca"}, DB1, "ok"),
        ("TLSv1.3 X", {"tls": "required"}, DB1, "warning"),
        ("", {}, DB1, "warning"),
        ("", {}, Endpoint("127.0.0.1", 3306), "ok"),
        ("", {}, Endpoint("::1", 3306), "ok"),
        ("", {}, Endpoint("localhost", 3306), "ok"),
        ("", {}, Endpoint("", 0, "/run/mysqld.sock"), "ok"),
        ("", {}, Endpoint("192.0.2.7", 3306), "warning"),
    ],
)
def test_plain_text_is_for_this_machine_only(tls: str, options: dict[str, str], endpoint: Endpoint, state: str) -> None:
    found = connection(dataclasses.replace(GOOD, tls=tls), config(**options), endpoint)
    (one,) = [one for one in found if one.check == "tls"]
    assert (one.state, bool(one.fix)) == (state, state == "warning")


def test_newer_servers_need_no_authority() -> None:
    plain = dataclasses.replace(GOOD, tls="")
    old = dataclasses.replace(plain, info=dataclasses.replace(INFO, version="10.11.19-MariaDB"))
    new, before = (next(iter(connection(facts, config(), DB1))).fix for facts in (plain, old))
    assert "tls=verify-password" in new
    assert "tls=verify-password" not in before
    assert "tls=verify-identity and tls_ca" in before


@pytest.mark.parametrize(("ahead_s", "state"), [(0.9, "ok"), (-0.9, "ok"), (1.5, "warning"), (-3600.0, "warning")])
def test_a_clock_that_is_off_by_more_than_a_second(ahead_s: float, state: str) -> None:
    (one,) = [o for o in connection(primary(clock=GOOD.primary.clock + ahead_s), config(), DB1) if o.check == "clock"]
    assert one.state == state
    assert ("ahead" if ahead_s > 0 else "behind") in one.what


def test_a_slow_answer_is_no_wrong_clock() -> None:
    slow = primary(clock=GOOD.primary.clock + 2.0, answered_at=GOOD.primary.clock + 2.0)
    assert [one.state for one in connection(slow, config(), DB1) if one.check == "clock"] == ["ok"]


def test_grants_of_use_are_proposed_to_the_account_as_the_server_knows_it() -> None:
    poor = dataclasses.replace(GOOD, replicas=None, binlogs=None, tables_visible=0)
    fixes = {one.check: (one.state, one.fix) for one in privileges(poor)}
    assert fixes["grant: replicas"] == ("note", "GRANT REPLICATION MASTER ADMIN ON *.* TO 'repl'@'%';")
    assert fixes["grant: binlogs"] == ("note", "GRANT BINLOG MONITOR ON *.* TO 'repl'@'%';")
    assert fixes["grant: tables"][0] == "note"
    assert fixes["grant: tables"][1].startswith("GRANT SELECT ON `database`.* TO 'repl'@'%';")
    assert [one.state for one in privileges(GOOD)] == ["ok"]


def test_unseen_tables_matter_where_rows_do_not_name_their_columns() -> None:
    unnamed = dataclasses.replace(INFO, binlog_row_metadata="NO_LOG")
    (one,) = privileges(dataclasses.replace(GOOD, info=unnamed, tables_visible=0))
    assert one.state == "warning"


def test_another_replica_with_our_id() -> None:
    (one,) = server_ids(OCCUPIED, US)
    assert (one.state, "other" in one.what) == ("missing", True)
    (drawn,) = server_ids(OCCUPIED, US._replace(configured=False))
    assert "relay.identity" in drawn.fix


def test_our_own_replica_has_our_id() -> None:
    assert [one.state for one in server_ids(OCCUPIED, US._replace(running=True))] == ["ok"]
    assert [one.state for one in server_ids(OCCUPIED, US._replace(left_open=frozenset({1})))] == ["note"]
    assert [one.state for one in server_ids(OCCUPIED, US._replace(left_open=frozenset({2})))] == ["missing"]
    assert [one.state for one in server_ids(OCCUPIED, US._replace(server_id=79))] == ["ok"]
    twice = dataclasses.replace(GOOD, replicas=(OtherReplica(77, "here"), OtherReplica(77, "elsewhere")))
    assert [one.state for one in server_ids(twice, US._replace(running=True))] == ["missing"]
    assert list(server_ids(dataclasses.replace(GOOD, replicas=None), US)) == []
