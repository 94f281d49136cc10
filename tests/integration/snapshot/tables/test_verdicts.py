"""How tables will be read, asked of real servers with tables of every sort and accounts that may see a part of them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING

import pymysql
import pytest
from click.testing import CliRunner

from replica.commands.cli import program
from replica.errors import AuthenticationError, ConfigError, PrerequisiteError
from replica.handshake.login.login import ask
from replica.options.config import ReplicaConfig
from replica.schema.patterns import matcher
from replica.snapshot.check.facts import TableFacts, ask_table_facts
from replica.snapshot.check.verdict import InitialVerdicts, judge, require
from tests.fixtures.installation import PROJECT

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from replica.snapshot.check.table_verdict import InitialVerdict
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

PASSWORD = "replica-secret"
ENGINES = {"ARCHIVE": "ha_archive", "BLACKHOLE": "ha_blackhole"}
TEXT = "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci"
PARENT = "FOREIGN KEY (p) REFERENCES parents (id)"
CHILD = "(id INT PRIMARY KEY, p INT"
TABLES = (
    "CREATE DATABASE kinds",
    "USE kinds",
    "CREATE TABLE plain (id BIGINT UNSIGNED PRIMARY KEY, n INT)",
    "CREATE TABLE composite (a INT, b DATE, c BINARY(8), PRIMARY KEY (b, c, a))",
    "CREATE TABLE by_unique (a INT, b INT NOT NULL, c INT NOT NULL, UNIQUE nullable (a), UNIQUE useful (c, b))",
    f"CREATE TABLE text_key (code {TEXT} PRIMARY KEY, n INT)",
    f"CREATE TABLE text_and_number (code {TEXT} PRIMARY KEY, n INT NOT NULL, UNIQUE number (n))",
    "CREATE TABLE parts (id INT PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 3",
    "CREATE TABLE compressed (id INT PRIMARY KEY, t TEXT) ROW_FORMAT=COMPRESSED",
    "CREATE TABLE versions (id INT PRIMARY KEY) WITH SYSTEM VERSIONING",
    "CREATE TABLE no_key (a INT, b INT)",
    "CREATE TABLE nullable (a INT UNIQUE)",
    "CREATE TABLE float_key (f FLOAT PRIMARY KEY)",
    "CREATE TABLE double_key (d DOUBLE NOT NULL, i INT NOT NULL, PRIMARY KEY (i, d))",
    "CREATE TABLE prefix_key (t TEXT NOT NULL, PRIMARY KEY (t(10)))",
    "CREATE TABLE hash_key (t TEXT NOT NULL, UNIQUE (t))",
    "CREATE TABLE old_engine (id INT PRIMARY KEY) ENGINE=MyISAM",
    "CREATE TABLE aria (id INT PRIMARY KEY) ENGINE=Aria",
    "CREATE TABLE memory (id INT PRIMARY KEY) ENGINE=MEMORY",
    "CREATE TABLE csv (a INT NOT NULL) ENGINE=CSV",
    "CREATE TABLE `we``ird na.me` (id INT PRIMARY KEY)",
    "CREATE SEQUENCE numbers",
    "CREATE VIEW shown AS SELECT * FROM plain",
    "CREATE TABLE parents (id INT PRIMARY KEY)",
    f"CREATE TABLE gone_with {CHILD}, CONSTRAINT of_parent {PARENT} ON DELETE CASCADE)",
    f"CREATE TABLE emptied {CHILD}, CONSTRAINT `od``d` {PARENT} ON DELETE SET NULL ON UPDATE CASCADE)",
    f"CREATE TABLE harmless {CHILD}, {PARENT})",
    "INSERT INTO plain SELECT seq, seq FROM seq_1_to_1000",
    "ANALYZE TABLE plain",
)


def make_kinds(server: MariaDb) -> None:
    server.sql("DROP DATABASE IF EXISTS kinds", *TABLES)
    for engine in ENGINES:
        server.sql(f"CREATE TABLE kinds.{engine.lower()} (id INT NOT NULL) ENGINE={engine}")
    if server.version != "10.5":
        server.sql("CREATE TABLE kinds.ignored (f FLOAT PRIMARY KEY, a INT NOT NULL, UNIQUE u (a) IGNORED)")
        server.sql("CREATE TABLE kinds.both_ways (a INT, b INT, PRIMARY KEY (a, b DESC))")


@pytest.fixture(scope="module")
def kinds(server: MariaDb) -> MariaDb:
    """A server with a table of every sort."""
    for library in ENGINES.values():
        with contextlib.suppress(pymysql.err.OperationalError):  # built in
            server.sql(f"INSTALL SONAME '{library}'")
    make_kinds(server)
    return server


def account(server: MariaDb, name: str, *grants: str) -> ReplicaConfig:
    """An account with REPLICATION SLAVE and these grants."""
    server.add_user(name, PASSWORD, grants="REPLICATION SLAVE")
    for grant in grants:
        server.sql("SET SESSION sql_log_bin = 0", f"GRANT {grant} TO '{name}'@'%'")
    given = {"host": server.host, "port": str(server.port), "user": name, "password": PASSWORD}
    return ReplicaConfig.parse(given)


def facts_of(config: ReplicaConfig, *patterns: str, but: tuple[str, ...] = ()) -> TableFacts:
    wanted = matcher(patterns)

    def wants(database: str, table: str) -> bool:
        return wanted.fits((database, table)) and table not in but

    return asyncio.run(ask(config, lambda _endpoint: ask_table_facts(patterns, wants)))


def verdicts_of(config: ReplicaConfig, *patterns: str) -> InitialVerdicts:
    return judge(facts_of(config, *patterns))


def by_table(verdicts: InitialVerdicts) -> dict[str, InitialVerdict]:
    return {one.name[1]: one for one in verdicts.tables}


def test_every_sort_of_table_has_its_verdict(kinds: MariaDb) -> None:
    found = by_table(verdicts_of(account(kinds, "reader", "SELECT ON kinds.*"), "kinds.*"))
    keys = {name: (one.key.index, one.key_columns, one.key.ordered) for name, one in found.items() if one.key}
    read = {name: keys[name] for name, one in found.items() if one.state == "read"}
    both_ways = {"both_ways": ("PRIMARY", ("a", "b"), False)} if kinds.version != "10.5" else {}
    assert read == both_ways | {
        "plain": ("PRIMARY", ("id",), True),
        "composite": ("PRIMARY", ("b", "c", "a"), True),
        "by_unique": ("useful", ("c", "b"), True),
        "text_key": ("PRIMARY", ("code",), False),
        "text_and_number": ("PRIMARY", ("code",), False),
        "parts": ("PRIMARY", ("id",), True),
        "compressed": ("PRIMARY", ("id",), True),
        "we`ird na.me": ("PRIMARY", ("id",), True),
        "parents": ("PRIMARY", ("id",), True),
        "gone_with": ("PRIMARY", ("id",), True),
        "emptied": ("PRIMARY", ("id",), True),
        "harmless": ("PRIMARY", ("id",), True),
        "versions": ("PRIMARY", ("id",), True),
    }
    refused = {name: [reason.check for reason in one.reasons] for name, one in found.items() if one.state == "refused"}
    newer = ["ignored"] if kinds.version != "10.5" else []
    without_key = ("no_key", "nullable", "float_key", "double_key", "prefix_key", "hash_key", *newer)
    other = ("old_engine", "aria", "memory", "csv", "archive", "blackhole")
    assert refused == {
        **{name: ["key"] for name in without_key},
        **{name: ["engine"] for name in other},
    }
    assert {name for name, one in found.items() if one.state == "left out"} == {"numbers"}
    assert "shown" not in found
    assert abs(found["plain"].rows - 1000) < 500  # the server's estimate
    assert found["plain"].octets >= 16_384


def test_foreign_keys_are_named_to_an_account_that_may_only_read(kinds: MariaDb) -> None:
    found = by_table(verdicts_of(account(kinds, "reader", "SELECT ON kinds.*"), "kinds.*"))
    warned = {
        name: one.warnings[0].what for name, one in found.items() if any(w.check == "cascade" for w in one.warnings)
    }
    assert set(warned) == {"gone_with", "emptied"}
    assert "the foreign key of_parent (ON DELETE CASCADE)" in warned["gone_with"]
    assert "the foreign key od`d (ON DELETE SET NULL, ON UPDATE CASCADE)" in warned["emptied"]
    assert "kinds.parents" in warned["emptied"]


def test_what_a_cascade_changes_is_in_no_binlog(kinds: MariaDb) -> None:
    """Hold the server to what is warned of."""
    kinds.sql("INSERT INTO kinds.parents VALUES (1)", "INSERT INTO kinds.gone_with VALUES (1, 1)")
    file, position = kinds.sql("SHOW MASTER STATUS")[0][:2]
    kinds.sql("DELETE FROM kinds.parents WHERE id = 1")
    assert kinds.sql("SELECT * FROM kinds.gone_with") == []
    events = kinds.sql(f"SHOW BINLOG EVENTS IN '{file}' FROM {position}")
    (table_id,) = [re.match(r"table_id: (\d+) ", row[5])[1] for row in events if "(kinds.parents)" in row[5]]  # type: ignore[index]
    rows = [row[5] for row in events if row[2] == "Delete_rows_v1"]
    assert [row.partition(" flags")[0] for row in rows] == [f"table_id: {table_id}"]


def test_each_remedy_mends_what_it_is_for(kinds: MariaDb) -> None:
    config = account(kinds, "reader", "SELECT ON kinds.*")
    skipped = ("csv", "archive", "blackhole")  # InnoDB takes them, and then they have no key: two steps
    for one in verdicts_of(config, "kinds.*").refused:
        if one.name[1] in skipped:
            continue
        (reason,) = one.reasons
        kinds.sql(reason.fix.partition(";")[0])
    left = verdicts_of(config, "kinds.*").refused
    assert {one.name[1] for one in left} == set(skipped)
    make_kinds(kinds)


def test_an_account_without_select_on_a_column_is_found_out(kinds: MariaDb) -> None:
    config = account(kinds, "partly", "SELECT (id) ON kinds.plain", "SELECT ON kinds.parts")
    verdicts = verdicts_of(config, "kinds.*")
    found = by_table(verdicts)
    assert {name: one.state for name, one in found.items()} == {"plain": "refused", "parts": "read"}
    (reason,) = found["plain"].reasons
    assert reason.check == "select"
    assert [one.check for one in verdicts.warnings] == ["grant"]
    with pytest.raises(AuthenticationError, match=r"kinds\.plain: the account partly@% has no SELECT"):
        require(verdicts)
    for fix in (reason.fix, verdicts.warnings[0].fix):
        kinds.sql("SET SESSION sql_log_bin = 0", fix)
    after = verdicts_of(config, "kinds.*")
    assert by_table(after)["plain"].state == "read"
    assert after.warnings == ()


def test_grants_of_a_role_count(kinds: MariaDb) -> None:
    kinds.sql(
        "SET SESSION sql_log_bin = 0",
        "CREATE OR REPLACE ROLE some_columns",
        "GRANT SELECT (id) ON kinds.plain TO some_columns",
        "GRANT SELECT ON kinds.parts TO some_columns",
    )
    config = account(kinds, "by_role", "some_columns")
    kinds.sql("SET SESSION sql_log_bin = 0", "SET DEFAULT ROLE some_columns FOR 'by_role'@'%'")
    found = by_table(verdicts_of(config, "kinds.*"))
    assert {name: one.state for name, one in found.items()} == {"plain": "refused", "parts": "read"}


def test_tables_that_are_named_are_refused_by_the_reason_for_it(kinds: MariaDb) -> None:
    config = account(kinds, "some", "SELECT ON kinds.parts", "SELECT ON kinds.shown", "SELECT ON kinds.numbers")
    patterns = ("kinds.parts", "kinds.shown", "kinds.numbers", "kinds.plain", "kinds.no_such_table")
    found = by_table(verdicts_of(config, *patterns))
    assert {name: [reason.check for reason in one.reasons] for name, one in found.items()} == {
        "parts": [],
        "shown": ["view"],
        "numbers": ["sequence"],
        "plain": ["select"],
        "no_such_table": ["select"],  # the server tells no more to one who may not read it
    }
    config = account(kinds, "some", "SELECT ON kinds.*")
    assert by_table(verdicts_of(config, *patterns))["no_such_table"].reasons[0].check == "absent"
    with pytest.raises(PrerequisiteError):
        require(verdicts_of(config, *patterns))


def test_tables_that_are_not_wanted_are_not_judged(kinds: MariaDb) -> None:
    config = account(kinds, "reader", "SELECT ON kinds.*")
    facts = facts_of(config, "kinds.p*", "kinds.csv", but=("plain", "csv"))
    assert {one.name[1] for one in facts.tables} == {"parts", "prefix_key", "parents"}
    assert (facts.named, facts.unseen, facts.hiding) == (frozenset(), (), ())


def test_settings_of_the_server_are_judged(make_server: Callable[..., MariaDb], server_version: str) -> None:
    server = make_server(server_version, "--binlog-row-image=MINIMAL", "--expire-logs-days=1")
    server.sql("CREATE DATABASE d", "CREATE TABLE d.t (id INT PRIMARY KEY)")
    config = account(server, "reader", "SELECT ON *.*")
    verdicts = verdicts_of(config, "*.*")
    assert [one.check for one in verdicts.refusals] == []
    assert "binlog_row_image" in [one.check for one in verdicts.warnings]
    assert [one.check for one in judge(facts_of(config, "*.*"), settled=True).refusals] == ["binlog_row_image"]
    assert facts_of(config, "*.*").expiry_s == 86_400.0
    server.sql(next(one for one in verdicts.warnings if one.check == "binlog_row_image").fix.partition(";")[0])
    server.sql("SET GLOBAL init_connect = 'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED'")
    verdicts = verdicts_of(config, "*.*")
    require(verdicts)
    assert [(one.check, "(init_connect)" in one.what) for one in verdicts.notes] == [("tx_isolation", True)]


def test_a_replica_that_logs_nothing_of_what_it_replicates_is_refused(make_server: Callable[..., MariaDb]) -> None:
    primary, other = make_server("10.11", server_id=1), make_server("10.11", "--skip-log-slave-updates", server_id=2)
    user, password = primary.add_user()
    source = (
        f"master_host='{primary.host}', master_port={primary.port}, master_user='{user}', master_password='{password}'"
    )
    other.sql(f"CHANGE MASTER TO {source}, master_use_gtid=slave_pos", "START SLAVE", "CREATE DATABASE d")
    config = account(other, "reader", "SELECT ON *.*")
    refusals = verdicts_of(config, "d.*").refusals
    assert [one.check for one in refusals] == ["log_slave_updates"]


def called(config: ReplicaConfig, *arguments: str) -> Result:
    variables = {
        "MARIADB_REPLICA_HOST": f"{config.endpoints[0]}",
        "MARIADB_REPLICA_USER": config.user or "",
        "MARIADB_REPLICA_PASSWORD": PASSWORD,
    }
    return CliRunner().invoke(program, ["check", *arguments], env=variables)


def test_the_command_says_it_all_and_ends_with_the_code_of_what_is_missing(kinds: MariaDb) -> None:
    config = account(kinds, "reader", "SELECT ON kinds.*")
    done = called(config, "--initial", "--table", "kinds.*")
    assert done.exit_code == 21
    for text in ("kinds.plain", "read by its primary key (id)", "kinds.aria", "of_parent", "in all"):
        assert text in done.stdout
    fine = called(config, "--initial", "--table", "kinds.plain", "--table", "kinds.parts", "--json")
    assert fine.exit_code == 0, fine.stdout
    (report,) = [one for one in json.loads(fine.stdout)["reports"] if "tables" in one]
    assert [(one["table"], one["state"]) for one in report["tables"]] == [
        ("kinds.parts", "read"),
        ("kinds.plain", "read"),
    ]
    assert report["tables"][1]["key"] == {"index": "PRIMARY", "columns": ["id"], "ordered": True}
    whole = called(config, "--initial", "--unkeyed", "--table", "kinds.aria", "--table", "kinds.no_key")
    assert whole.exit_code == 0, whole.stdout
    assert whole.stdout.count("read in one go: ") == 2
    assert isinstance(called(config, "--unkeyed").exception, ConfigError)
    assert called(account(kinds, "none"), "--initial", "--table", "kinds.plain").exit_code == 31
    assert isinstance(called(config, "--table", "kinds.plain").exception, ConfigError)


def test_the_privileges_of_the_page_are_enough(any_server: MariaDb) -> None:
    page = (PROJECT / "docs" / "snapshot.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    any_server.sql(
        "CREATE OR REPLACE DATABASE shop", "CREATE TABLE shop.orders (id INT PRIMARY KEY)", "DROP USER IF EXISTS repl"
    )
    any_server.sql(*(one for one in block.split(";") if one.strip()))
    given = {"host": any_server.host, "port": str(any_server.port), "user": "repl", "password": "choose-one"}
    verdicts = verdicts_of(ReplicaConfig.parse(given), "shop.*")
    require(verdicts)
    assert (verdicts.warnings, [one.shown for one in verdicts.read]) == ((), ["shop.orders"])


def test_many_tables_take_few_questions(make_server: Callable[..., MariaDb]) -> None:
    server = make_server("10.11", "--table-open-cache=400")
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE DATABASE many")
        for number in range(500):
            cursor.execute(f"CREATE TABLE many.t{number:05d} (id INT PRIMARY KEY, a VARCHAR(9))")
    config = account(server, "reader", "SELECT ON many.*")
    before = int(server.sql("SHOW GLOBAL STATUS LIKE 'Com_select'")[0][1])
    assert len(verdicts_of(config, "many.*").read) == 500
    assert int(server.sql("SHOW GLOBAL STATUS LIKE 'Com_select'")[0][1]) - before < 30
