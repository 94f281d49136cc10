"""Keys of real tables: bytes that sort as the server sorts, literals that find the same row, ranges of the index."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import pytest

from replica.protocol.rows.rows_event import RowsEvent
from replica.protocol.rows.table_map import value_extent
from replica.protocol.wire import Cursor
from replica.rows.types.keys import key_bytes_of
from replica.schema.text.naming import quoted
from replica.snapshot.check.catalog import choose_key
from replica.snapshot.check.facts import ask_indexes
from replica.snapshot.rows.kept_key import kept_key, key_bytes, key_literals, key_parts
from tests.integration.edges.log import Log, catalog, version
from tests.integration.snapshot.kit.table_rows import connect, order_by, read_rows
from tests.kit.snapshot.key_range import after_key, up_to

if TYPE_CHECKING:
    from replica.schema.table import TableSchema
    from replica.snapshot.connection.connection import TableConnection
    from replica.snapshot.rows.row_block import TableKey
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server


class KeyCase(NamedTuple):
    """The columns of a table, its key, and rows of values of the key."""

    columns: str
    key: str
    rows: tuple[str, ...]
    ordered: bool = True
    since: tuple[int, int] = (10, 5)


def one(declared: str, *values: str, ordered: bool = True, since: tuple[int, int] = (10, 5)) -> KeyCase:
    return KeyCase(f"k {declared} NOT NULL", "PRIMARY KEY (k)", values, ordered, since)


DAYS = ("'0000-00-00'", "'0000-05-05'", "'0001-01-01'", "'2024-00-00'", "'2024-02-28'", "'2024-02-31'", "'9999-12-31'")
UUIDS = tuple(
    f"'{text}'"
    for text in (
        "00000000-0000-0000-0000-000000000000", "00112233-4455-1677-8899-aabbccddeeff",
        "ffffffff-4455-1677-8899-aabbccddeefe", "00112233-4455-4677-8899-aabbccddee00",
        "123e4567-e89b-12d3-a456-426655440000", "123e4567-e89b-42d3-0456-426655440000",
        "01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8000",
        "aa890a5d-ac96-674b-8cce-b302099a8057", "aa890a5d-ac96-874b-8cce-b302099a8057",
        "ffffffff-ffff-ffff-ffff-ffffffffffff", "123e4567-e89b-02d3-a456-426655440000",
    )
)  # fmt: skip
CASES = {
    "int": one("INT", "-2147483648", "-1", "0", "1", "256", "2147483647"),
    "tinyint": one("TINYINT", "-128", "-1", "0", "127"),
    "mediumint": one("MEDIUMINT", "-8388608", "-256", "-1", "0", "65536", "8388607"),
    "mediumint unsigned": one("MEDIUMINT UNSIGNED", "0", "8388608", "16777215"),
    "bigint unsigned": one("BIGINT UNSIGNED", "0", "9223372036854775807", "9223372036854775808",
                           "18446744073709551615"),
    "decimal": one("DECIMAL(30,5)", "-9999999999999999999999999.99999", "-1.5", "-0.00001", "0", "0.00001",
                   "1000000000", "9999999999999999999999999.99999"),
    "decimal 65": one("DECIMAL(65,30)", "-1e34", "-1e-30", "0", "1e-30", "12345678901234567890.123"),
    "date": one("DATE", *DAYS),
    "datetime": one("DATETIME(6)", *DAYS, "'2024-02-28 00:00:00.000001'", "'1969-12-31 23:59:59.999999'"),
    "datetime 0": one("DATETIME", *DAYS, "'2024-02-28 23:59:59'"),
    "timestamp": one("TIMESTAMP(3)", "0", "'1970-01-01 00:00:01'", "'2024-03-31 02:30:00.999'",
                     "'2038-01-19 03:14:07'"),
    "time": one("TIME(2)", "'-838:59:59.99'", "'-24:00:00'", "'-00:00:01'", "'-00:00:00.01'", "0", "'00:00:00.01'",
                "'838:59:59.99'"),
    "time 0": one("TIME", "'-838:59:59'", "'-00:00:01'", "0", "'25:00:00'"),
    "year": one("YEAR", "0", "1901", "1970", "2069", "2155"),
    "year 2": one("YEAR(2)", "70", "99", "69", ordered=False),
    "enum": one("ENUM('z','a','Ä','')", "1", "2", "3", "4"),
    "set": one("SET('z','y','x','w','v','u','t','s','r')", "0", "1", "2", "3", "256", "511"),
    "bit": one("BIT(12)", "0", "1", "255", "256", "4095"),
    "bit 64": one("BIT(64)", "0", "1", "9223372036854775808", "18446744073709551615"),
    "binary": one("BINARY(4)", "''", "0x00000001", "0x61", "0x610001", "0x61006200", "0xffffffff"),
    "binary 16": one("BINARY(16)", "UNHEX(MD5(1))", "UNHEX(MD5(2))", "0x8000", "UNHEX(MD5(3))"),
    "varbinary": one("VARBINARY(20)", "''", "0x00", "0x0000", "0x0001", "0x00ff", "0x61", "0x6100", "0x610000",
                     "0x6101", "0xff", "0xffff"),
    "varchar of bytes": one("VARCHAR(9) CHARACTER SET binary", "'a'", "'B'", "'a '", "''"),
    "uuid": one("UUID", *UUIDS, since=(10, 7)),
    "inet6": one("INET6", "'::'", "'::1'", "'1::'", "'::ffff:1.2.3.4'", "'ff00::'", "'2001:db8::1'"),
    "inet4": one("INET4", "'0.0.0.0'", "'10.0.0.0'", "'127.0.0.1'", "'255.255.255.255'", since=(10, 10)),
    "composite": KeyCase(
        "a INT NOT NULL, b VARBINARY(5) NOT NULL, c DECIMAL(5,2) NOT NULL", "PRIMARY KEY (b, c, a)",
        ("1, 'x', -1", "2, 'x', -1", "1, '', 5", "1, 'x', 1.5", "-1, 'x', 1.5", "1, 'x\\0', -999.99"),
    ),
    "composite with enum": KeyCase(
        "k ENUM('b', 'a', 'c') NOT NULL, a INT NOT NULL", "PRIMARY KEY (k, a)",
        ("'a', 1", "'a', 2", "'b', 2", "'b', 1", "'c', 0", "'c', -1"),
    ),
    "of a unique index": KeyCase(
        "a INT NOT NULL, b INT, c DATE NOT NULL, d DOUBLE NOT NULL",
        "UNIQUE u1 (a, b), UNIQUE u2 (c, a), UNIQUE u3 (d), KEY k (c)",
        ("1, 1, '2024-01-01', 1", "2, NULL, '2023-01-01', 2", "1, 3, '2023-01-01', 3"),
    ),
    "text": one("VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci", "'a'", "'Ö'", "'z9'", "'Z '", "'😀'",
                "'B'", ordered=False),
    "latin1": one("CHAR(20) CHARACTER SET latin1", "'a'", "'ü'", "'B'", "''", ordered=False),
    "utf8mb3": one("VARCHAR(20) CHARACTER SET utf8mb3", "'a'", "'ü'", "'B'", "''", ordered=False),
    "utf16": one("VARCHAR(20) CHARACTER SET utf16", "'a'", "'ü'", "'B'", "''", ordered=False),
    "cp932": one("VARCHAR(20) CHARACTER SET cp932", "'a'", "'テ漢'", "''", ordered=False),
}  # fmt: skip


def made(server: MariaDb, case: KeyCase, *settings: str) -> TableSchema:
    with server.connect() as connection, connection.cursor() as cursor:
        for setting in ("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'", *settings):
            cursor.execute(setting)
        cursor.execute("CREATE OR REPLACE DATABASE `keys` CHARACTER SET utf8mb4")
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute(f"CREATE TABLE `keys`.t ({case.columns}, id INT, {case.key}) ENGINE=InnoDB")
        for number, row in enumerate(case.rows):
            cursor.execute(f"INSERT INTO `keys`.t VALUES ({row}, {number})")
    return catalog(server, "keys")["keys", "t"]


def key_of(connection: TableConnection, schema: TableSchema) -> TableKey:
    indexes = connection.run(ask_indexes([(schema.database, schema.table)]))
    key = choose_key(schema, indexes[schema.database, schema.table])
    assert key is not None
    return key


@pytest.mark.parametrize("name", CASES)
def test_keys_sort_and_are_found_again(server: MariaDb, name: str) -> None:
    case = CASES[name]
    if version(server) < case.since:
        assert case.since > (10, 5)
        return
    schema = made(server, case)
    with closing(connect(server)) as connection:
        key = key_of(connection, schema)
        assert key.ordered is case.ordered
        assert key.index == ("u2" if "u2" in case.key else "PRIMARY")
        block = read_rows(connection, schema, key).block()  # refuses rows of an ordered key that come in another order
        assert block.rows == len(case.rows)
        keys = [block.key(row) for row in range(block.rows)]
        assert len(set(keys)) == block.rows
        if key.ordered:
            assert sorted(keys) == keys
        for row in range(block.rows):
            kept = kept_key(schema, key, block.image(row).tobytes())
            assert key_bytes(schema, key, kept) == keys[row]
            literals = key_literals(schema, key, kept)
            names = [quoted(schema.columns[number].name) for number in key.columns]
            same = " AND ".join(f"{n} = {v}" for n, v in zip(names, literals, strict=True))
            found = read_rows(connection, schema, key, same)
            assert found.rows == 1, literals
            assert found.last_key() == kept
            if not key.ordered:
                continue
            rest = read_rows(connection, schema, key, after_key(schema, key, kept)).block()
            assert rest.images.tobytes() == block.images[int(block.ends[row]) :].tobytes(), literals
            first = read_rows(connection, schema, key, up_to(schema, key, kept)).block()
            assert first.images.tobytes() == block.images[: int(block.ends[row])].tobytes(), literals


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.ordered])
def test_ranges_of_ordered_keys_use_the_index(server: MariaDb, name: str) -> None:
    """A chunk costs its rows, not the table: no scan of all, no sort."""
    case = CASES[name]
    if version(server) < case.since:
        assert case.since > (10, 5)
        return
    schema = made(server, case)
    with closing(connect(server)) as connection:
        key = key_of(connection, schema)
        block = read_rows(connection, schema, key).block()
        kept = [kept_key(schema, key, block.image(row).tobytes()) for row in (0, block.rows // 2)]
        for where in (after_key(schema, key, kept[0]), up_to(schema, key, kept[1])):
            plan = connection.rows(
                f"EXPLAIN SELECT * FROM `keys`.t FORCE INDEX ({key.index}) WHERE {where} "
                f"ORDER BY {order_by(schema, key)} LIMIT 2"
            )
            kind, extra = plan[0][3], plan[0][-1] or ""
            assert kind == ("index" if name == "set" else "range"), (where, plan)
            assert "filesort" not in extra, (where, plan)


OLD = {
    "datetime": one("DATETIME", "'0000-00-00'", "'2024-02-28 23:59:59'", "'9999-12-31'", "'2024-02-31'"),
    "timestamp": one("TIMESTAMP", "0", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"),
    "time": one("TIME", "'-838:59:59'", "'-00:00:01'", "0", "'25:00:00'"),
    "date": one("DATE", *DAYS),
}


@pytest.mark.parametrize("name", OLD)
def test_old_formats_in_the_stream_give_the_keys_of_the_rows_read(server: MariaDb, name: str) -> None:
    try:
        schema = made(server, OLD[name], "SET GLOBAL mysql56_temporal_format = OFF")
    finally:
        server.sql("SET GLOBAL mysql56_temporal_format = ON")
    log = Log((server.datadir / server.binlogs()[-1]).read_bytes(), {})
    wire = log.table_map("t", "keys").columns
    with closing(connect(server)) as connection:
        key = key_of(connection, schema)
        assert key.ordered
        block = read_rows(connection, schema, key).block()
    parts = key_parts(schema, key, wire)
    logged = []
    for event in log.events(RowsEvent):
        cursor = Cursor(event.images)
        cursor.bits(len(wire))
        width, _ = value_extent(wire[0])
        logged.append(key_bytes_of(parts, [bytes(cursor.take(width))]))
    assert sorted(logged) == [block.key(row) for row in range(block.rows)]
