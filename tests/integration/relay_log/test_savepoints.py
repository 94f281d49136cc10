"""Rows that real servers logged and rolled back to a savepoint: every way of reading gives the tables of SELECT.

Random transactions set savepoints in all spellings, nest, repeat and release them, roll back to them and to nothing,
and touch what cannot be rolled back (temporary tables), so that the rows stay in the binlog. Triggers and functions
have savepoints of their own. MyISAM, a sequence, XA, statements that fail and several domains are among it.

The routines end with a change of a row, which a REPLACE by an equal row is not. If they do not, the server (10.5 to
11.8) writes the next statement without table maps and without its routines' savepoints: what they roll back looks as if
it existed (docs/protocol.md).
"""

from __future__ import annotations

import io
import json
import random
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pymysql
import pytest
from pyspark.sql.types import VariantVal

from replica.commands.dump.outputs.count import write_counts
from replica.commands.dump.outputs.json_lines import write_json_rows
from replica.protocol.groups.savepoints import savepoint_key
from replica.readers.arrow import decode_files, read_relay_log
from replica.readers.rows.names import Names
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import OPTIONS, ChosenTransactions, Reading
from replica.rows.decode.decode import DecodeOptions
from streaming_source.files.load_files import load_files
from streaming_source.files.partition import read_file_changes
from streaming_source.options.source_options import SourceOptions
from streaming_source.rows.reader import read_changes
from streaming_source.source.batch.planning import plan_range
from streaming_source.source.batch.server import end_at_load
from streaming_source.source.load import load_plan
from tests.integration.edges.log import version
from tests.integration.edges.streams import receive
from tests.integration.schema.schema_stream import Stream
from tests.unit.rows.twin import Tables, check_twin

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server

NO_SAVEPOINT, DUPLICATE, NO_TABLE = 1305, 1062, 1146
DOMAIN_KEPT = 1953
"""Of a newer server, while a MIXED session has temporary tables: it says that it is inside a transaction."""
TABLES = ("t", "u", "m", "trig")
TEMPORARY = "CREATE OR REPLACE TEMPORARY TABLE kept (i INT)"
NAMES = (
    *("a", "A", "`a`", "b", "`B`", "é", "`É`", "e", "`E`", "ß", "`a``b`", "`A``B`", "`x y`", "`X Y`", "`select`"),
    *("ä", "`Ä`", "`1`", "S", "s"),
)
Row = tuple[str, int, str, str, int | None, int | None, int | None, int | None]
"""GTID, ordinal, table, operation, `id` and `v` before and after."""


class Database:
    """One test's tables: t and u, m without transactions, trig whose trigger writes u, and a function that does."""

    def __init__(self, server: MariaDb) -> None:
        self.server = server
        self.name = f"sp_{secrets.token_hex(4)}"
        columns = "(id INT PRIMARY KEY, v INT)"
        server.add_user()
        server.sql("SET GLOBAL log_bin_trust_function_creators = 1", "SET GLOBAL binlog_row_metadata = FULL")
        server.sql(f"CREATE DATABASE {self.name}")
        server.sql(
            f"USE {self.name}",
            *(f"CREATE TABLE {table} {columns}" for table in ("t", "u", "trig")),
            f"CREATE TABLE m {columns} ENGINE = MyISAM",
            "CREATE TABLE other (i INT)",
            "CREATE SEQUENCE s",
            "CREATE TRIGGER tr AFTER INSERT ON trig FOR EACH ROW BEGIN "
            "  REPLACE INTO u VALUES (NEW.id, 1); SAVEPOINT inner_one; REPLACE INTO u VALUES (NEW.id + 100, 2);"
            "  IF NEW.v % 3 = 0 THEN ROLLBACK TO inner_one; END IF;"
            "  SAVEPOINT inner_two; DELETE FROM u WHERE id > 255;"
            "  IF NEW.v % 2 = 0 THEN ROLLBACK TO INNER_one; REPLACE INTO u VALUES (NEW.id + 50, 3); END IF;"
            "  INSERT INTO u VALUES (NEW.id + 200, NEW.v) ON DUPLICATE KEY UPDATE v = v + 1; END",
            "CREATE FUNCTION f(x INT) RETURNS INT MODIFIES SQL DATA BEGIN "
            "  REPLACE INTO t VALUES (x, 7); SAVEPOINT in_f; REPLACE INTO u VALUES (x + 1, 7);"
            "  IF x % 2 = 0 THEN ROLLBACK TO in_f; END IF;"
            "  INSERT INTO t VALUES (x + 2, 8) ON DUPLICATE KEY UPDATE v = v + 1; RETURN x; END",
        )
        server.sql("FLUSH BINARY LOGS")
        self.start = server.gtid_binlog_pos()
        self.first_file = server.binlogs()[-1]

    def rows(self) -> dict[str, dict[int, int]]:
        return {table: dict(self.server.sql(f"SELECT id, v FROM {self.name}.{table}")) for table in TABLES}

    def file(self) -> Path:
        """The one file that all was written to."""
        self.server.sql("FLUSH BINARY LOGS")
        assert self.server.binlogs()[-2] == self.first_file
        return self.server.datadir / self.first_file


class Writer:
    """Random transactions in one session."""

    def __init__(self, database: Database, seed: int) -> None:
        self.chance = random.Random(seed)
        self._connection = database.server.connect(database=database.name, charset="utf8mb4", autocommit=True)
        self._cursor = self._connection.cursor()
        self._xa = 0
        self._routines = False  # in the transaction at hand
        self._mixed = False

    def close(self) -> None:
        self._connection.close()

    def run(self, text: str) -> None:
        try:
            self._cursor.execute(text)
        except pymysql.err.Error as error:
            if error.args[0] not in (NO_SAVEPOINT, DUPLICATE, NO_TABLE, DOMAIN_KEPT):
                raise AssertionError(text) from error

    def session(self) -> None:
        """Change how names are written; not inside a transaction."""
        self.run(f"SET gtid_domain_id = {self.chance.choice((0, 0, 7))}")
        self.run(f"SET sql_quote_show_create = {self.chance.randrange(2)}")
        self.run(f"SET sql_mode = '{self.chance.choice(('', 'ANSI_QUOTES'))}'")
        self.run(f"SET NAMES {self.chance.choice(('utf8mb4', 'latin1'))}")
        self._connection.encoding = "utf8" if self._names() == "utf8mb4" else "latin1"
        self._mixed = self.chance.random() < 0.3
        self.run(f"SET SESSION binlog_format = {'MIXED' if self._mixed else 'ROW'}")

    def _names(self) -> str:
        self._cursor.execute("SELECT @@character_set_client")
        (name,) = self._cursor.fetchone() or ("",)
        return str(name)

    def transaction(self) -> None:
        if self.chance.random() < 0.3:
            self.session()
        xa, self._routines = self.chance.random() < 0.15, self.chance.random() < 0.5
        if xa:
            self._xa += 1
            self.run(f"XA START 'x{self._xa}'")
        else:
            self.run("BEGIN")
        for _ in range(self.chance.randint(1, 14)):
            self.run(self.statement())
        if not xa:
            self.run(self.chance.choice(("COMMIT", "COMMIT", "COMMIT", "ROLLBACK")))
            return
        name = f"'x{self._xa}'"
        self.run(f"XA END {name}")
        if self.chance.random() < 0.3:
            self.run(f"XA COMMIT {name} ONE PHASE")
            return
        self.run(f"XA PREPARE {name}")
        self.run(f"XA {self.chance.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} {name}")

    def statement(self) -> str:
        kind = self.chance.choices(list(_STATEMENTS), [weight for weight, _ in _STATEMENTS.values()])[0]
        forms = _STATEMENTS[kind][1]
        if kind == "change" and self._routines:
            forms += _ROUTINES
        if self._mixed and kind == "change":  # rows of statements that are not safe, and statements logged as text
            forms = _MIXED
        number = self.chance.randrange(60)
        return self.chance.choice(forms).format(
            name=self.chance.choice(NAMES),
            table=self.chance.choice(("t", "u", "m")),
            number=number,
            next=number + 1,
            far=number + 4,
            value=self.chance.randrange(9),
            verb=self.chance.choice(("REPLACE", "INSERT", "INSERT IGNORE")),
        )


_STATEMENTS = {
    "set": (20, ("SAVEPOINT {name}", "savepoint /* x */ {name}", "/*!50000 SAVEPOINT {name} */")),
    "back": (
        20,
        ("ROLLBACK TO {name}", "rollback work to savepoint {name}", "ROLLBACK TO SAVEPOINT\n{name} -- x"),
    ),
    "release": (4, ("RELEASE SAVEPOINT {name}",)),
    "temporary": (10, (TEMPORARY,)),
    "other": (4, ("SELECT NEXTVAL(s)", "SET @x = 1", "SELECT 1")),
    "change": (
        42,
        (
            "{verb} INTO {table} VALUES ({number}, {value})",
            "{verb} INTO {table} VALUES ({number}, {value}), ({far}, {value}), ({next}, 1)",
            "UPDATE {table} SET v = v + 1 WHERE id BETWEEN {number} AND {far}",
            "DELETE FROM {table} WHERE id BETWEEN {number} AND {next}",
        ),
    ),
}
"""Kinds of statements: how often, and in which forms."""
_ROUTINES = ("INSERT IGNORE INTO trig VALUES ({number}, {value}), ({next}, {far} % 7)", "DO f({number})")
_MIXED = (
    "REPLACE INTO {table} VALUES ({number}, UUID_SHORT() % 100), ({far}, 5)",
    "REPLACE INTO {table} VALUES ({number}, UUID_SHORT() % 100)",
    "INSERT INTO other VALUES (1)",
    "INSERT INTO kept VALUES (1)",
)


def write(database: Database, seed: int, transactions: int) -> None:
    writer = Writer(database, seed)
    for _ in range(transactions):
        writer.transaction()
    writer.close()


# -- ways of reading ------------------------------------------------------------------------------------------------


def compare_with_twin(database: Database, file: Path) -> None:
    """Kernels and the plain reference agree on the whole file."""
    names: dict[str, Any] = {f"{database.name}.{table}": None for table in TABLES}
    check_twin(file.read_bytes(), Tables(names), DecodeOptions(shape="variant"))


def from_dump(database: Database, file: Path) -> list[Row]:
    out = io.BytesIO()
    write_json_rows(_reading(database, file), out)
    changes = map(json.loads, out.getvalue().splitlines())
    return [_row(one["gtid"], one["ordinal"], one["table"], one["op"], one["before"], one["after"]) for one in changes]


def _reading(database: Database, file: Path) -> Reading:
    notices = Notices(io.StringIO())
    tables = tuple(f"{database.name}.{table}" for table in TABLES)
    return Reading([str(file)], ChosenTransactions(), Names(tables, notices, OPTIONS.policy), notices)


def counts(database: Database, file: Path) -> dict[tuple[str, str], int]:
    """What `dump --count` says: row changes by table and operation."""
    out = io.BytesIO()
    write_counts(_reading(database, file), out, as_json=True)
    found = {}
    for one in json.loads(out.getvalue())["tables"]:
        found.update({(one["table"], op): one[op] for op in ("insert", "update", "delete") if one.get(op)})
    return found


def from_stream(database: Database, folder: Path, **options: str) -> list[Row]:
    """Batch by batch, each planned and read again by a query that starts anew inside transactions too."""
    stream = RowStream(database, folder, options)
    stream.read(database.server.gtid_binlog_pos())
    stream.stop()
    return stream.rows


class RowStream(Stream):
    """A stream that keeps all rows."""

    def __init__(self, database: Database, folder: Path, options: dict[str, str]) -> None:
        tables = ",".join(f"{database.name}.{table}" for table in TABLES)
        super().__init__(database.server, folder, database.start, tables=tables, **options)
        self.rows: list[Row] = []

    def replay(self, start: Any, end: Any) -> None:
        partitions = self.open().partitions(self._again(start), self._again(end))
        assert self.plan is not None
        for partition in partitions:
            self.rows += _of_batches(read_changes(partition, self.plan))


def from_server(database: Database, **options: str) -> list[Row]:
    server = database.server
    given = {
        "host": server.host,
        "port": str(server.port),
        "user": "repl",
        "password": "replica-secret",
        "tables": ",".join(f"{database.name}.{table}" for table in TABLES),
        "startingPosition": database.start,
        "endingPosition": server.gtid_binlog_pos(),
        **options,
    }
    plan, options_of, found = load_plan(given), SourceOptions.parse(given), []
    for partition in plan_range(options_of, plan, end_at_load(options_of), secrets.token_hex(4)).partitions:
        found += _of_batches(read_changes(partition, plan))
    return found


def from_files(database: Database, file: Path) -> list[Row]:
    tables = ",".join(f"{database.name}.{table}" for table in TABLES)
    loaded = load_files({"path": str(file), "tables": tables})
    found = []
    for partition in loaded.partitions:
        found += _of_batches(read_file_changes(partition, loaded.plan))
    return found


def _of_batches(batches: Iterable[Any]) -> list[Row]:
    found = []
    for batch in batches:
        for row in batch.to_pylist():
            before, after = (
                None if image is None else VariantVal(image["value"], image["metadata"]).toPython()
                for image in (row["before"], row["after"])
            )
            transaction = row["transaction"]
            found.append(_row(transaction["gtid"], transaction["ordinal"], row["table"], row["op"], before, after))
    return found


def from_arrow(batches: Mapping[str, Iterable[Any]]) -> list[Row]:
    """Table by table, put together by transaction and ordinal."""
    return [
        _row(row["gtid"], row["ordinal"], table, row["op"], row["before"], row["after"])
        for table, read in batches.items()
        for batch in read
        for row in batch.to_pylist()
    ]


def _row(gtid: str, ordinal: int, table: str, op: str, before: Any, after: Any) -> Row:
    pairs = [(None, None) if image is None else (image["id"], image["v"]) for image in (before, after)]
    return gtid, ordinal, table, op, *pairs[0], *pairs[1]


def replayed(rows: Sequence[Row]) -> dict[str, dict[int, int]]:
    """The tables after all changes; each must find the row that it changes as it was."""
    state: dict[str, dict[int, int]] = {table: {} for table in TABLES}
    for row in rows:
        _, _, table, _, old, old_value, new, value = row
        if old is not None:
            assert state[table].pop(old) == old_value, row
        if new is not None:
            assert new not in state[table], row
            assert value is not None
            state[table][new] = value
    return state


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: ([int(part) for part in row[0].split("-")], row[1]))


def check(database: Database, folder: Path) -> int:
    """All ways of reading agree with each other and with SELECT; returns how many rows were read."""
    expected = database.rows()
    file = database.file()
    compare_with_twin(database, file)
    whole = from_files(database, file)
    assert replayed(whole) == expected
    relay = receive(database.server, database.start, folder / "received")
    received = relay.log.directory
    named = {table: f"{database.name}.{table}" for table in TABLES}
    ways = {
        "dump": from_dump(database, file),
        "stream": from_stream(database, folder / "whole"),
        "rows": from_stream(database, folder / "rows", maxRowsPerTrigger="3", splitLargeTransactions="true"),
        "bytes": from_stream(database, folder / "bytes", maxBytesPerTrigger="300", splitLargeTransactions="true"),
        "server": from_server(database),
        "inline": from_server(database, transport="inline"),
    }
    for name, rows in ways.items():
        assert rows == whole, name
    arrow: dict[str, Mapping[str, Iterable[Any]]] = {
        "files": {table: decode_files([file], one) for table, one in named.items()},
        "relay": {table: read_relay_log(received, one) for table, one in named.items()},
    }
    for name, batches in arrow.items():
        assert in_order(from_arrow(batches)) == in_order(whole), name
    by_operation: dict[tuple[str, str], int] = {}
    for row in whole:
        by_operation[row[2], row[3]] = by_operation.get((row[2], row[3]), 0) + 1
    assert counts(database, file) == by_operation
    return len(whole)


def test_the_issue(any_server: MariaDb, tmp_path: Path) -> None:
    database = Database(any_server)
    gtid = any_server.sql(
        f"USE {database.name}",
        "INSERT INTO t VALUES (1, 1)",
        "BEGIN",
        "INSERT INTO t VALUES (3, 3)",
        "SAVEPOINT a",
        TEMPORARY,
        "INSERT INTO t VALUES (4, 4)",
        "UPDATE t SET v = 100 WHERE id = 1",
        "ROLLBACK TO a",
        "COMMIT",
        "SELECT @@last_gtid",
    )[0][0]
    assert check(database, tmp_path) == 2
    place = ("--relay-dir", str(tmp_path / "received"))
    shown = replica("tail", *place, "--from", "earliest", "--no-follow", "--table", f"{database.name}.t")
    assert [line.split()[0] for line in shown.splitlines() if "id=" in line] == ["insert", "insert"], shown
    told = json.loads(replica("explain", gtid, *place, "--json"))
    assert told["tables"] == [{"table": f"{database.name}.t", "inserted": 1, "updated": 0, "deleted": 0}]


def replica(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "replica", *arguments], capture_output=True, text=True, check=False)
    return done.stdout


@pytest.mark.parametrize("seed", [20261129])
def test_random_transactions(server: MariaDb, tmp_path: Path, seed: int) -> None:
    database = Database(server)
    write(database, seed, 50)
    assert check(database, tmp_path) > 50


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_many_random_transactions(server: MariaDb, tmp_path: Path, seed: int) -> None:
    database = Database(server)
    write(database, seed, 200)
    assert check(database, tmp_path) > 200


BEGUN = ["BEGIN", "INSERT INTO t VALUES (3, 3)", TEMPORARY]
UNDONE = "INSERT INTO t VALUES (4, 4)"
CASES = [
    [*BEGUN, "SAVEPOINT a", UNDONE, "SAVEPOINT b", UNDONE.replace("4", "5"), "ROLLBACK TO a", "COMMIT"],
    [*BEGUN, "SAVEPOINT a", "INSERT INTO t VALUES (5, 5)", "SAVEPOINT A", UNDONE, "ROLLBACK TO a", "COMMIT"],
    [*BEGUN, "SAVEPOINT a", "SAVEPOINT b", UNDONE, "RELEASE SAVEPOINT b", "ROLLBACK TO a", "ROLLBACK TO a", "COMMIT"],
    [*BEGUN, "/*!50000 SAVEPOINT a */", UNDONE, "SET STATEMENT lock_wait_timeout = 5 FOR ROLLBACK TO `A`", "COMMIT"],
    ["BEGIN", "SAVEPOINT a", "INSERT INTO t VALUES (3, 3)", TEMPORARY, "ROLLBACK TO a", UNDONE, "COMMIT"],
    [*BEGUN, UNDONE, "ROLLBACK", "INSERT INTO t VALUES (6, 6)"],
    [*BEGUN, "COMMIT AND CHAIN", "SAVEPOINT a", UNDONE, "ROLLBACK AND CHAIN", "INSERT INTO t VALUES (6, 6)", "COMMIT"],
    [*BEGUN, "SAVEPOINT a", UNDONE, "COMMIT RELEASE"],
    [*BEGUN, "SAVEPOINT a", "INSERT INTO m VALUES (4, 4)", UNDONE, "SELECT NEXTVAL(s)", "ROLLBACK TO a", "COMMIT"],
    ["INSERT INTO m VALUES (3, 1)", *BEGUN, "SAVEPOINT a", "UPDATE t, m SET t.v = 9, m.v = 9 WHERE t.id = m.id",
     "ROLLBACK TO a", "COMMIT"],
    [*BEGUN, "SAVEPOINT a", "INSERT IGNORE INTO t VALUES (4, 4), (3, 1)", "ROLLBACK TO a", "COMMIT"],
    [*BEGUN, "SAVEPOINT a", UNDONE, "DROP TEMPORARY TABLE kept", "ROLLBACK TO a", "INSERT INTO u VALUES (1, 1)",
     "COMMIT"],
    ["XA START 'x'", *BEGUN[1:], "SAVEPOINT a", UNDONE, "ROLLBACK TO a", "INSERT INTO t VALUES (5, 5)", "XA END 'x'",
     "XA PREPARE 'x'", "XA COMMIT 'x'"],
    ["XA START 'x'", *BEGUN[1:], "SAVEPOINT a", UNDONE, "ROLLBACK TO a", "XA END 'x'", "XA COMMIT 'x' ONE PHASE"],
    ["XA START 'x'", *BEGUN[1:], "SAVEPOINT a", UNDONE, "ROLLBACK TO a", "XA END 'x'", "XA PREPARE 'x'",
     "XA ROLLBACK 'x'"],
    ["XA START 'x'", *BEGUN[1:], UNDONE, "XA END 'x'", "XA ROLLBACK 'x'"],
    ["PREPARE a FROM 'SAVEPOINT a'", "PREPARE b FROM 'ROLLBACK /* x */ TO a'", *BEGUN, "EXECUTE a", UNDONE, "EXECUTE b",
     "COMMIT"],
    [f"BEGIN NOT ATOMIC START TRANSACTION; {BEGUN[1]}; {TEMPORARY}; SAVEPOINT a; {UNDONE}; ROLLBACK TO a; COMMIT; END"],
    ["SET autocommit = 0", *BEGUN[1:], "SAVEPOINT a", UNDONE, "ROLLBACK TO a", "CREATE TABLE made (i INT)"],
]  # fmt: skip


@pytest.mark.quick_on("newest")
def test_each_statement_of_the_table_in_the_documentation(server: MariaDb, tmp_path: Path) -> None:
    """docs/protocol.md, statements inside a group."""
    database = Database(server)
    for number, case in enumerate(CASES):
        if case[0].startswith("PREPARE") and version(server) < (10, 6):
            continue  # which cannot prepare these statements
        server.sql(f"SET GLOBAL log_bin_compress = {number % 2}")
        server.sql("SET GLOBAL log_bin_compress_min_len = 10")
        server.sql(
            f"USE {database.name}", "DROP TABLE IF EXISTS made", *(f"DELETE FROM {table}" for table in TABLES), *case
        )
        left = case[1:2] == ["SAVEPOINT a"] or case[-1] == "COMMIT RELEASE"
        assert (4 in database.rows()["t"]) == left, case
    server.sql("SET GLOBAL log_bin_compress = 0", "SET GLOBAL log_bin_compress_min_len = DEFAULT")
    assert check(database, tmp_path) > len(CASES)


def test_a_routine_of_another_session_state_has_savepoints_of_its_own(server: MariaDb, tmp_path: Path) -> None:
    """What a caller rolls back to is not the savepoint of a function or trigger, but may be that of a procedure."""
    database = Database(server)
    server.sql(
        f"USE {database.name}",
        "SET sql_mode = 'PAD_CHAR_TO_FULL_LENGTH'",
        "CREATE TABLE w (id INT PRIMARY KEY, v INT)",
        "CREATE FUNCTION g(x INT) RETURNS INT MODIFIES SQL DATA BEGIN "
        "  SAVEPOINT a; INSERT INTO u VALUES (x, 1); ROLLBACK TO a; INSERT INTO u VALUES (x, 2); RETURN x; END",
        "CREATE TRIGGER of_w AFTER INSERT ON w FOR EACH ROW BEGIN "
        "  INSERT INTO u VALUES (NEW.id + 10, 1); SAVEPOINT a; INSERT INTO u VALUES (NEW.id + 20, 1); END",
        "CREATE PROCEDURE p(x INT) BEGIN SAVEPOINT a; INSERT INTO u VALUES (x, 1); END",
    )
    for call in ("DO g(1)", "INSERT INTO w VALUES (1, 1)", "CALL p(1)"):
        for rollback in ("ROLLBACK TO a", "SET @x = 1"):
            server.sql(
                f"USE {database.name}",
                *("DELETE FROM t", "DELETE FROM u", "DELETE FROM w", "SET @@session.sql_mode = ''"),
                *(*BEGUN, "SAVEPOINT a", UNDONE, call, rollback, "INSERT INTO t VALUES (5, 5)", "COMMIT"),
            )
            kept = rollback != "ROLLBACK TO a" or call == "CALL p(1)"
            assert (4 in database.rows()["t"]) == kept, call
    check(database, tmp_path)


def test_names_are_one_where_the_server_finds_them_so(server: MariaDb) -> None:
    accents = version(server) >= (11, 5)
    collation = "utf8mb3_general1400_as_ci" if accents else "utf8_general_ci"
    with server.connect(charset="utf8mb4") as connection, connection.cursor() as cursor:
        cursor.execute("SET max_recursive_iterations = 100000")
        cursor.execute(
            "WITH RECURSIVE n AS (SELECT 1 AS c UNION ALL SELECT c + 1 FROM n WHERE c < 65535) SELECT c, HEX("
            f"WEIGHT_STRING(CONVERT(CHAR(c USING utf32) USING utf8) COLLATE {collation})) FROM n"
        )
        weights = {code: int(weight, 16) for code, weight in cursor.fetchall() if not 0xD800 <= code <= 0xDFFF}
        ours = {code: savepoint_key(f"é{chr(code)}", accents=accents)[1:] for code in weights}
        assert {code: chr(weight) for code, weight in weights.items()} == ours
        cursor.execute("BEGIN")
        chance = random.Random(5)
        letters = [*"aAäÄàeEéÉßsSiIİςΣåÅøo `K", "\u0131", "\u03c3", "\u0415", "\u0435", "\u0451"]
        for _ in range(1500):
            one, other = chance.choice(letters), chance.choice(letters)
            cursor.execute(f"SAVEPOINT {quoted(f'x{one}.')}")
            same = True
            try:
                cursor.execute(f"ROLLBACK TO {quoted(f'x{other}.')}")
            except pymysql.err.Error as error:
                if error.args[0] != NO_SAVEPOINT:
                    raise
                same = False
            cursor.execute(f"RELEASE SAVEPOINT {quoted(f'x{one}.')}")
            assert same == (savepoint_key(one, accents=accents) == savepoint_key(other, accents=accents)), (one, other)


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
