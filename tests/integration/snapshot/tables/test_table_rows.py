"""Rows that were read from tables are those of the stream: the same images, the same values, bit by bit."""

from __future__ import annotations

import math
import struct
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from replica.errors import SchemaError
from replica.protocol.rows.table_map import TableMapEvent, parse_table_map
from replica.rows.decode.decode import DecodeOptions
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from tests.integration.edges.log import Log, catalog, version
from tests.integration.rows.test_character_sets import catalog as whole_catalog
from tests.integration.rows.test_character_sets import columns, name_of, write
from tests.integration.rows.test_random_tables import COLUMNS, MAX_COLUMNS
from tests.integration.rows.type_cases import CASES
from tests.integration.rows.type_tables import TypeTable, tables
from tests.integration.snapshot.kit.table_rows import binlog, connect, decoded, logged_images, read, same_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.schema.table import TableSchema
    from replica.snapshot.connection.connection import TableConnection
    from tests.fixtures.mariadb import MariaDb
    from tests.integration.rows.type_cases import Case

pytestmark = pytest.mark.server

SHAPES = (
    DecodeOptions(),
    DecodeOptions(invalid_dates="text", geometry="spark"),
    DecodeOptions(shape="flat", invalid_dates="text"),
    DecodeOptions(shape="variant", invalid_dates="text"),
)


def last_file(server: MariaDb) -> bytes:
    return (server.datadir / server.binlogs()[-1]).read_bytes()


def check_table(connection: TableConnection, log: Log, schema: TableSchema, *, alone: bool = True) -> None:
    """What is read of a table is what the log says was inserted, in the order of `id`.

    `alone`: the stream tells all of it without the catalog.
    """
    block = read(connection, schema)
    log = log.only(schema.table, schema.database)
    theirs = log.table_map(schema.table, schema.database)
    ours = parse_table_map(block.table_map)
    names = [column.name for column in schema.columns]

    with_hashes = [column.name for column in theirs.columns]
    assert with_hashes[: len(names)] == names == [column.name for column in ours.columns]
    assert all(str(name).startswith("DB_ROW_HASH_") for name in with_hashes[len(names) :])
    for policy in (ValuePolicy(), ValuePolicy("text", geometry="spark")):
        for known in (schema, None):
            plans = [compile_layout(event, known, None, policy) for event in (ours, theirs)]
            assert plans[0].outputs == plans[1].outputs
            assert plans[0].versioned == plans[1].versioned
            for one, other in zip(plans[0].columns, plans[1].columns, strict=False):
                said = [(p.kind, p.nullable, p.labels, p.charset, p.key, p.scale, p.fsp) for p in (one, other)]
                assert said[0] == said[1], one.name

    compressed = any("COMPRESSED" in column.column_type for column in schema.columns)
    if not compressed and len(with_hashes) == len(names):
        assert block.images.tobytes() == logged_images(log)
    made = binlog(block)
    for options in SHAPES:
        rows = [
            decoded(data, event, schema, options, schema.name) for data, event in ((made, ours), (log.data, theirs))
        ]
        same_rows(rows[0], rows[1], names)
        if schema.versioned:
            assert set(rows[0].history) == {False}
        if alone:
            same_rows(decoded(made, ours, None, options, schema.name), rows[1], names)


def test_every_type_of_the_matrix(server: MariaDb) -> None:
    matrix = tables([case for case in CASES if case.since <= version(server)])
    with server.connect() as writer, writer.cursor() as cursor, closing(connect(server)) as connection:
        run = cursor.execute
        run("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', character_set_connection = utf8mb4")
        run("CREATE OR REPLACE DATABASE matrix CHARACTER SET utf8mb4")
        run("USE matrix")
        run("SET GLOBAL binlog_row_metadata = FULL")
        run("FLUSH BINARY LOGS")
        for table in matrix:
            run(table.create)
            run(table.insert)
        run("SET GLOBAL binlog_row_metadata = NO_LOG")
        log = Log(last_file(server), catalog(server, "matrix"))
        for table in matrix:
            catalog_only = any(case.catalog_only for case in table.cases)
            check_table(connection, log, log.catalog["matrix", table.name], alone=not catalog_only)


def test_every_character_set_in_every_type(server: MariaDb) -> None:
    sets = [str(row[0]) for row in server.sql("SHOW CHARACTER SET") if row[0] != "binary"]
    with server.connect() as writer, writer.cursor() as cursor, closing(connect(server)) as connection:
        cursor.execute("SET GLOBAL binlog_row_metadata = FULL")
        cursor.execute("CREATE OR REPLACE DATABASE sets CHARACTER SET utf8mb4")
        cursor.execute("FLUSH BINARY LOGS")
        for one in sets:
            cursor.execute(f"CREATE TABLE sets.{one} ({columns(one, name_of(one))})")
            write(cursor, f"sets.{one}", name_of(one))
        cursor.execute("SET GLOBAL binlog_row_metadata = NO_LOG")
        schemas = whole_catalog(server, "sets")
        log = Log(last_file(server), {})
        for one in sets:
            check_table(connection, log, schemas[f"sets.{one}"])


@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,  # what a server makes of values never seen must not decide whether a suite passes
    database=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(cases=st.lists(COLUMNS, min_size=1, max_size=MAX_COLUMNS).map(tuple), compress=st.booleans())
def test_random_tables(server: MariaDb, cases: tuple[Case, ...], *, compress: bool) -> None:
    table = TypeTable("r", cases)
    with server.connect() as writer, writer.cursor() as cursor, closing(connect(server)) as connection:
        run = cursor.execute
        run("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', character_set_connection = utf8mb4")
        run("CREATE OR REPLACE DATABASE random CHARACTER SET utf8mb4")
        run("USE random")
        run("SET GLOBAL binlog_row_metadata = FULL")
        run(f"SET GLOBAL log_bin_compress = {int(compress)}")
        run("FLUSH BINARY LOGS")
        run(table.create)
        run(table.insert)
        run("SET GLOBAL binlog_row_metadata = NO_LOG")
        run("SET GLOBAL log_bin_compress = 0")
        log = Log(last_file(server), catalog(server, "random"))
        check_table(connection, log, log.catalog["random", "r"])


def test_a_row_that_is_longer_than_a_packet(make_server: Callable[..., MariaDb], server_version: str) -> None:
    server = make_server(server_version, "--max-allowed-packet=128M", "--binlog-row-metadata=FULL")
    server.sql(
        "CREATE DATABASE large CHARACTER SET utf8mb4",
        "CREATE TABLE large.t (id INT PRIMARY KEY, a INT, data LONGBLOB, b VARCHAR(10))",
        "FLUSH BINARY LOGS",
        "INSERT INTO large.t VALUES (1, 5, 'x', 'b'), (2, NULL, REPEAT('0123456789abcdef', 1 << 20), 'behind'), "
        "(3, 7, REPEAT('y', 40 << 20), NULL), (4, 8, NULL, 'last')",
    )
    log = Log(last_file(server), catalog(server, "large"))
    with closing(connect(server)) as connection:
        block = read(connection, log.catalog["large", "t"])
    assert block.rows == 4
    assert block.images.tobytes() == logged_images(log)


ODD_TABLES = {
    "generated": (
        """id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, p VARCHAR(9) AS (CONCAT('<', a)) PERSISTENT,
           x INT INVISIBLE DEFAULT 7, `odd ``name` INT, `é` ENUM('a', 'b') INVISIBLE DEFAULT 'b'""",
        "(id, a) VALUES (1, 5), (2, NULL), (3, -1)",
    ),
    "own_period": (
        """id INT PRIMARY KEY, since TIMESTAMP(6) GENERATED ALWAYS AS ROW START,
           until TIMESTAMP(6) GENERATED ALWAYS AS ROW END INVISIBLE, a INT, PERIOD FOR SYSTEM_TIME (since, until)""",
        "(id, a) VALUES (1, 5), (2, 6)",
    ),
    "hashed": ("id INT PRIMARY KEY, a INT, doc TEXT, UNIQUE (doc)", "VALUES (1, 5, 'x'), (2, 6, NULL)"),
    "zerofill": (
        """id INT PRIMARY KEY, d DECIMAL(9,3) ZEROFILL, i INT(7) ZEROFILL, f FLOAT(7,3) ZEROFILL, e DOUBLE(12,2),
           y YEAR(2)""",
        "VALUES (1, 5.5, 3, 1.5, -2.25, 70), (2, 0, 0, 0, 0, 69), (3, 999999.999, 9999999, 9999.999, 1e9, 2001)",
    ),
    "versioned": ("id INT PRIMARY KEY, a INT", "VALUES (1, 5), (2, 6)"),
    "empty": ("id INT PRIMARY KEY, a INT", ""),
}


@pytest.mark.parametrize("name", sorted(ODD_TABLES))
def test_columns_that_select_star_does_not_give(server: MariaDb, name: str) -> None:
    declared, values = ODD_TABLES[name]
    versioned = name in ("versioned", "own_period")
    with closing(connect(server)) as connection:
        server.sql(
            "SET GLOBAL binlog_row_metadata = FULL",
            "CREATE OR REPLACE DATABASE odd CHARACTER SET utf8mb4",
            "FLUSH BINARY LOGS",
            f"CREATE TABLE odd.{name} ({declared}){' WITH SYSTEM VERSIONING' * versioned}",
            *([f"INSERT INTO odd.{name} {values}"] if values else []),
            "SET GLOBAL binlog_row_metadata = NO_LOG",
        )
        log = Log(last_file(server), catalog(server, "odd"))
        schema = log.catalog["odd", name]
        if not values:
            assert read(connection, schema).rows == 0
            return
        check_table(connection, log, schema, alone=name != "own_period")
        if versioned:
            server.sql(f"UPDATE odd.{name} SET a = 9 WHERE id = 1", f"DELETE FROM odd.{name} WHERE id = 2")
            assert read(connection, schema).rows == 1


@pytest.mark.parametrize(
    "change",
    ["MODIFY c VARCHAR(300)", "MODIFY c VARCHAR(20) CHARACTER SET latin1", "MODIFY c VARBINARY(80)", "MODIFY n BIGINT",
     "MODIFY n INT UNSIGNED", "MODIFY d DECIMAL(10,3)", "MODIFY t DATETIME(3)", "MODIFY b BIT(7)",
     "MODIFY x MEDIUMTEXT"],
)  # fmt: skip
def test_a_table_that_was_changed_since_is_refused(server: MariaDb, change: str) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE changed CHARACTER SET utf8mb4",
        "CREATE TABLE changed.t (id INT PRIMARY KEY, n INT, c VARCHAR(20), d DECIMAL(10,2), t DATETIME(2), b BIT(6), "
        "x TEXT)",
    )
    schema = catalog(server, "changed")["changed", "t"]
    server.sql(f"ALTER TABLE changed.t {change}")
    with closing(connect(server)) as connection, pytest.raises(SchemaError, match="in the result differs"):
        read(connection, schema)


def read_and_logged(server: MariaDb, database: str) -> tuple[TableSchema, list[tuple[bytes, TableMapEvent]]]:
    """The table t: its definition; its rows as they are read from it, and as the last file of the log has them."""
    log = Log(last_file(server), catalog(server, database))
    schema = log.catalog[database, "t"]
    with closing(connect(server)) as connection:
        block = read(connection, schema)
    return schema, [(binlog(block), parse_table_map(block.table_map)), (log.data, log.table_map("t", database))]


def test_years_that_an_alter_left_are_read_as_the_log_has_them(server: MariaDb) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE years",
        "USE years",
        "CREATE TABLE t (id INT PRIMARY KEY, y YEAR, n INT)",
        "INSERT INTO t VALUES (1, 1901, 0), (2, 2001, 0), (3, 0, 0), (4, 1970, 0), (5, 2000, 0), (6, 2155, 0), "
        "(7, NULL, 0)",
        "ALTER TABLE t MODIFY y YEAR(2)",
        "FLUSH BINARY LOGS",
        "UPDATE t SET n = 1",
    )
    schema, ways = read_and_logged(server, "years")
    for data, event in ways:
        rows = decoded(data, event, schema, DecodeOptions(), schema.name)
        assert rows.after[1].to_pylist() == [1901, 2001, 0, 1970, 2000, 2155, None]


def test_digits_that_an_alter_left_are_read_as_select_shows_them(server: MariaDb) -> None:
    with server.connect() as writer, writer.cursor() as cursor:
        run = cursor.execute
        run("CREATE OR REPLACE DATABASE digits")
        run("USE digits")
        run("CREATE TABLE t (id INT PRIMARY KEY, d DOUBLE, f FLOAT, n INT)")
        random = "(RAND(1) - 0.5) * POW(10, seq % 9), (RAND(2) - 0.5) * 1000"
        run(f"INSERT INTO t SELECT seq, {random}, 0 FROM seq_1_to_2000")
        run("INSERT INTO t VALUES (0, 1.005, -0.001, 0), (-1, 0.285, 0.5, 0), (-2, NULL, 16777216, 0)")
        run("ALTER TABLE t MODIFY d DOUBLE(15,2), MODIFY f FLOAT(12,1)")
        run("FLUSH BINARY LOGS")
        run("UPDATE t SET n = 1")
        run("SELECT id, d, f FROM t ORDER BY id")
        shown = [(d, None if f is None else struct.unpack("f", struct.pack("f", f))[0]) for _, d, f in cursor]
    schema, ways = read_and_logged(server, "digits")
    for data, event in ways:
        rows = decoded(data, event, schema, DecodeOptions(), schema.name)
        found = pa.table([*rows.after[:3]], names=["id", "d", "f"]).sort_by("id")
        assert list(zip(*(found.column(name).to_pylist() for name in ("d", "f")), strict=True)) == shown
        assert [math.copysign(1, v) for v, _ in shown if v == 0] == [
            math.copysign(1, v) for v in found.column("d").to_pylist() if v == 0
        ]
        stored = decoded(data, event, schema, DecodeOptions(stored_digits=True), schema.name)
        assert stored.after[1] != rows.after[1]
