"""Accounts that may not read what a query selects: said when it is loaded, with the statement that mends it."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from replica.errors import AuthenticationError, ConfigError, SchemaError
from streaming_source.source.load import load_plan
from tests.fixtures.installation import PROJECT
from tests.fixtures.mariadb import MariaDb
from tests.integration.schema.schema_stream import Stream, rows
from tests.spark.daemons import Daemon

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streaming_source.rows.read_plan import ReadPlan

pytestmark = pytest.mark.server

DENIED = r"the account {user}@% has no SELECT on {names}"


@pytest.fixture(scope="module", params=["10.5", "11.8"])
def primary(request: pytest.FixtureRequest) -> Iterator[MariaDb]:
    with MariaDb(request.param) as server:
        server.sql(
            "CREATE DATABASE d",
            "CREATE TABLE d.t (id INT PRIMARY KEY, secret INT)",
            "CREATE TABLE d.u (id INT PRIMARY KEY)",
            "CREATE VIEW d.v AS SELECT * FROM d.t",
        )
        yield server


def load(primary: MariaDb, user: str, **options: str) -> ReadPlan:
    where = {"host": primary.host, "port": str(primary.port), "user": user, "password": "x"}
    return load_plan(where | options)


def account(primary: MariaDb, user: str, *grants: str) -> None:
    primary.add_user(user, "x", grants="REPLICATION SLAVE")
    for grant in grants:
        primary.sql(f"GRANT {grant} TO '{user}'@'%'")


def mend(primary: MariaDb, error: pytest.ExceptionInfo[AuthenticationError]) -> None:
    """Do what the message says."""
    statements = re.findall(r"GRANT [^;]+;", error.value.hint)
    assert statements
    primary.sql(*statements)


@pytest.mark.parametrize(
    ("grants", "options", "names"),
    [
        ((), {"table": "d.t"}, r"d\.t,"),
        (("SELECT (id) ON d.t",), {"table": "d.t"}, r"d\.t, or not on all columns"),
        ((), {"tables": "d.t,d.u"}, r"d\.t, d\.u,"),
        (("SELECT ON d.t",), {"tables": "d.t,d.u"}, r"d\.u,"),
        ((), {"tables": "d.*"}, r"d\.\*,"),
        ((), {"tables": "*.t"}, r"\*\.\*,"),
    ],
)
def test_what_cannot_be_read_is_refused_and_the_statement_mends_it(
    primary: MariaDb, grants: tuple[str, ...], options: dict[str, str], names: str
) -> None:
    account(primary, "poor", *grants)
    with pytest.raises(AuthenticationError, match=DENIED.format(user="poor", names=names)) as caught:
        load(primary, "poor", **options)
    mend(primary, caught)
    plan = load(primary, "poor", **options)
    assert plan.tables.unreadable is None
    assert ("d", "t") in plan.tables.catalog


def test_what_is_not_there_is_told_from_what_is_hidden(primary: MariaDb) -> None:
    account(primary, "reader", "SELECT ON d.*")
    with pytest.raises(SchemaError, match=r"d\.tt does not exist on the server\. Did you mean d\.t"):
        load(primary, "reader", table="d.tt")
    with pytest.raises(SchemaError, match=r"d\.v is a VIEW, which has no rows in a binlog"):
        load(primary, "reader", table="d.v")
    assert load(primary, "reader", tables="d.t,d.later").tables.unreadable is None
    primary.sql("CREATE OR REPLACE ROLE readers", "GRANT SELECT ON d.* TO readers")
    account(primary, "member")
    primary.sql("GRANT readers TO member@'%'", "SET DEFAULT ROLE readers FOR member@'%'")
    assert load(primary, "member", tables="d.*").tables.unreadable is None
    # Some privilege is enough to see a table: this account needs no SELECT.
    account(primary, "writer", "INSERT ON d.t")
    plan = load(primary, "writer", table="d.t")
    assert [column.name for column in plan.columns or ()] == ["id", "secret"]


def test_where_only_some_tables_are_seen_the_others_are_refused_by_name(
    primary: MariaDb, caplog: pytest.LogCaptureFixture
) -> None:
    account(primary, "partly", "SELECT ON d.t")
    with caplog.at_level(logging.WARNING):
        plan = load(primary, "partly", tables="d.*")
    assert "may not read all of d.*" in caplog.text
    assert "GRANT SELECT ON `d`.* TO 'partly'@'%';" in caplog.text
    unreadable = plan.tables.unreadable
    assert unreadable is not None
    error = unreadable.refusal("d", "u")
    assert error is not None
    assert "GRANT SELECT ON `d`.`u` TO 'partly'@'%';" in error.hint
    assert unreadable.refusal("e", "u") is None


def test_rows_that_tell_their_columns_need_no_select(
    primary: MariaDb, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    account(primary, "blind")
    (tmp_path / "schema.sql").write_text("CREATE DATABASE d; USE d; CREATE TABLE t (id INT, secret INT);")
    assert load(primary, "blind", tables="d.t", schemaFile=str(tmp_path / "schema.sql")).tables.unreadable
    before = primary.sql("SELECT @@GLOBAL.binlog_row_metadata")[0][0]
    primary.sql("SET GLOBAL binlog_row_metadata = FULL")
    try:
        with caplog.at_level(logging.WARNING):
            plan = load(primary, "blind", tables="d.*")
        assert plan.tables.unreadable is not None
        assert "arrive as bytes" in caplog.text
        with pytest.raises(AuthenticationError):  # its columns are the query's
            load(primary, "blind", table="d.t")
    finally:
        primary.sql(f"SET GLOBAL binlog_row_metadata = {before}")


def test_the_first_row_of_a_hidden_table_names_the_grant_and_goes_on_behind_it(
    primary: MariaDb, tmp_path: Path
) -> None:
    account(primary, "partly", "SELECT ON d.t")
    login = {"user": "partly", "password": "x"}
    stream = Stream(primary, tmp_path, primary.gtid_binlog_pos(), tables="d.*", **login)
    stream.begin()
    primary.sql("REPLACE d.t VALUES (1, 2)")
    stream.read(primary.gtid_binlog_pos())
    primary.sql("REPLACE d.u VALUES (7)")
    with pytest.raises(SchemaError, match=r"rows of d\.u do not name .* has no SELECT on it") as caught:
        stream.read(primary.gtid_binlog_pos())
    stream.stop()
    primary.sql(*re.findall(r"GRANT [^;]+;", caught.value.hint))
    stream.read(primary.gtid_binlog_pos())
    assert rows(stream) == [{"id": 1, "secret": 2}, {"id": 7}]
    stream.stop()


@pytest.mark.parametrize(
    ("options", "told", "instead"),
    [
        ({"tables": "D.*"}, r"D\.\*", "d.*"),
        ({"tables": "d.u,d.Wörk"}, r"d\.Wörk", "d.wörk"),
        ({"tables": "d.*", "excludeTables": "d.T"}, r"d\.T", "d.t"),
        ({"tables": "d.*", "resnapshot": "d.T@again", "startingPosition": "initial"}, r"d\.T", "d.t"),
    ],
)
def test_capitals_are_refused_if_the_server_stores_names_in_lower_case(
    lowering: MariaDb, options: dict[str, str], told: str, instead: str
) -> None:
    with pytest.raises(ConfigError, match=rf"no table is called {told}: .* in lower case") as caught:
        load(lowering, "rich", **options)
    assert instead in caught.value.hint
    assert ("d", "t") in load(lowering, "rich", tables="d.*").tables.catalog
    assert load(lowering, "rich", table="D.T").tables.patterns == ("d.t",)


def test_capitals_are_refused_in_the_log_of_such_a_server(lowering: MariaDb, tmp_path: Path) -> None:
    lowering.add_user()
    lowering.sql("REPLACE D.T VALUES (1)")
    with Daemon(lowering, tmp_path / "relay") as daemon:
        daemon.catch_up()
        log = str(daemon.relay_dir)
        for given in ({"tables": "d.*", "excludeTables": "d.U"}, {"tables": "D.*"}, {"table": "d.T"}):
            with pytest.raises(ConfigError, match=r"no table is called .* in lower case"):
                load_plan({**given, "relayDir": log})
    connection = ("--host", lowering.host, "--port", str(lowering.port), "--user", "repl")
    first = str(next(Path(log).glob("relay.*[0-9]")))
    for command in (
        ("tail", "--relay-dir", log, "--no-follow", "--from", "earliest", "--json"),
        ("tail", *connection, "--no-follow", "--from", "earliest", "--json"),
        ("dump", "--json", first),
        ("dump", "--count", "--json", first),
    ):
        ended = replica(*command, "--table", "d.T")
        assert (ended.returncode, ended.stdout) == (20, ""), command  # a ConfigError
        assert re.search(r"no table is called d\.T: .* in lower case .*Write d\.t\.", " ".join(ended.stderr.split()))
        assert '"t"' in replica(*command, "--table", "d.t").stdout


def replica(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"MARIADB_REPLICA_PASSWORD": "replica-secret"}
    program = [sys.executable, "-m", "replica", *arguments]
    return subprocess.run(program, env=environment, text=True, cwd=PROJECT, capture_output=True, check=False)


@pytest.fixture(scope="module")
def lowering() -> Iterator[MariaDb]:
    with MariaDb("10.11", "--lower-case-table-names=1") as server:
        server.add_user("rich", "x")
        server.sql("CREATE DATABASE D", "CREATE TABLE D.T (id INT PRIMARY KEY)", "CREATE TABLE D.U (id INT)")
        yield server
