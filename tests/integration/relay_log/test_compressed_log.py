"""log_bin_compress and COMPRESSED columns, apart and together, as real servers write them: what was set is read.

The sizes stand around the thresholds (log_bin_compress_min_len 256, column_compression_threshold 100) and beyond what
two and three bytes of length hold.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from replica.protocol.constants import EventType
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.rows.table_map import TableMapEvent
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb
from tests.unit.rows.twin import Tables, check_twin, kernel_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.server

SIZES = (0, 1, 99, 100, 255, 256, 300, 70_000)
HUGE = 17 << 20
HUGE_ID = 103
COMPRESSED_ROWS = {EventType.WRITE_ROWS_COMPRESSED_V1, EventType.UPDATE_ROWS_COMPRESSED_V1}
COMPRESSED_ROWS |= {EventType.DELETE_ROWS_COMPRESSED_V1}
COLUMNS = ("b", "t", "v", "n", "s")
LONGEST = {"b": 1 << 30, "t": 65_000, "v": 5000, "n": 400, "s": 100}
PLAIN = "b LONGBLOB, t TEXT, v VARCHAR(5000), n VARBINARY(400), s VARCHAR(100) CHARACTER SET latin1"
COMPRESSED = (
    "b LONGBLOB COMPRESSED, t TEXT COMPRESSED, v VARCHAR(5000) COMPRESSED, n VARBINARY(400) COMPRESSED, "
    "s VARCHAR(100) COMPRESSED CHARACTER SET latin1"
)


class Case(NamedTuple):
    columns: str
    log_bin_compress: bool
    zlib_wrap: bool = False
    huge: int | None = None
    """The `values` of a row that are HUGE: of an even one they can be compressed. Written by the newest server alone:
    how a length is written is no matter of the version."""


CASES = {
    "plain": Case(PLAIN, log_bin_compress=False),
    "compressed events": Case(PLAIN, log_bin_compress=True, huge=17),
    "compressed columns": Case(COMPRESSED, log_bin_compress=False),
    "compressed columns, zlib": Case(COMPRESSED, log_bin_compress=False, zlib_wrap=True),
    "both": Case(COMPRESSED, log_bin_compress=True, huge=18),
}

Row = tuple[bytes | str | None, ...]


class Recorded(NamedTuple):
    data: bytes
    inserted: dict[int, Row]
    final: dict[int, Row]
    """What SELECT gives in the end."""


def values(number: int, size: int) -> Row:
    """A row whose values are `size` long where their columns have room: every second one cannot be compressed."""
    noise = random.Random(number)
    if number % 2:
        blob = noise.randbytes(size)
        characters = min(size, LONGEST["t"]) // 3
        text = "".join(noise.choices("abcdefghij\N{EURO SIGN}\N{OGHAM LETTER BEITH}", k=characters))
    else:
        blob, text = b"ab" * (size // 2), "x" * size
    short = "".join(noise.choices("abc\xe9\xff", k=min(size, LONGEST["s"])))
    return blob, text[: LONGEST["t"] // 3], text[: LONGEST["v"]], blob[: LONGEST["n"]], short


def rows_to_insert(huge: int | None) -> dict[int, Row]:
    rows: dict[int, Row] = {
        number: values(number, size) for number, size in enumerate([s for s in SIZES for _ in "ab"])
    }
    rows[100] = (None,) * 5
    rows[101] = (b"", "", "", b"", "")
    rows[102] = (b"\0" * 300, "\0\1", "\x80" * 200, b"\x8a\x01\x2c", "a")  # looks like what compression leaves
    if huge is not None:
        rows[HUGE_ID] = values(huge, HUGE)
    return rows


@pytest.fixture(scope="module")
def recorded(server_version: str) -> Iterator[dict[str, Recorded]]:
    """One binlog file a case: inserts one by one and many at once, updates, deletes."""
    found = {}
    newest = server_version == list(installations())[-1]
    with MariaDb(server_version, "--max-allowed-packet=64M", "--binlog-row-metadata=FULL") as server:
        for number, (name, case) in enumerate(CASES.items()):
            server.sql(
                f"SET GLOBAL log_bin_compress = {case.log_bin_compress}",
                f"SET GLOBAL column_compression_zlib_wrap = {case.zlib_wrap}",
                f"CREATE DATABASE d{number} CHARACTER SET utf8mb4",
                f"CREATE TABLE d{number}.t (id INT PRIMARY KEY, {case.columns})",
                "FLUSH BINARY LOGS",
            )
            found[name] = record(server, f"d{number}.t", case if newest else case._replace(huge=None))
        yield found


def record(server: MariaDb, table: str, case: Case) -> Recorded:
    inserted = rows_to_insert(case.huge)
    insert = f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s, %s)"
    with server.connect(autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} COMMENT '{'a statement that is worth compressing ' * 10}'")
        for number, row in inserted.items():
            cursor.execute(insert, (number, *row))
        cursor.executemany(insert, [(1000 + i, *values(i, i * 7)) for i in range(200)])
        cursor.execute(f"UPDATE {table} SET v = CONCAT(v, 'tail') WHERE id >= 1000 AND CHAR_LENGTH(v) < 4000")
        cursor.execute(f"UPDATE {table} SET b = REPEAT('0123456789', 100), s = NULL WHERE id < 8")
        cursor.execute("SET SESSION binlog_row_image = MINIMAL")
        cursor.execute(f"UPDATE {table} SET n = REPEAT('n', 380) WHERE id BETWEEN 100 AND 1099")
        # An event is compressed by the length of its first row: one that is whole.
        cursor.execute("SET SESSION binlog_row_image = FULL")
        cursor.execute(f"DELETE FROM {table} WHERE id BETWEEN 1100 AND 1199")
        cursor.execute(f"SELECT * FROM {table} ORDER BY id")
        final = {row[0]: tuple(row[1:]) for row in cursor.fetchall()}
    current = server.binlogs()[-1]
    server.sql("FLUSH BINARY LOGS")
    return Recorded((server.datadir / current).read_bytes(), inserted, final)


def event_types(data: bytes) -> set[int]:
    return {found.event[4] for found, _ in decode_file(data)}


@pytest.mark.parametrize("name", CASES)
def test_every_value_is_what_was_inserted_and_the_rows_replay_to_the_table(
    recorded: dict[str, Recorded], name: str
) -> None:
    run, case = recorded[name], CASES[name]
    types = event_types(run.data)
    assert (types >= COMPRESSED_ROWS, EventType.QUERY_COMPRESSED in types) == (case.log_bin_compress,) * 2
    database = f"d{list(CASES).index(name)}"
    decoder = RangeDecoder(Tables({f"{database}.t": None}), DecodeOptions(), output_of(run.data, database))
    table: dict[int, Row] = {}
    with_after: dict[int, Row] = {}
    for batch in decoder.decode(run.data, checksum=True):
        before, after = ([a.to_pylist() for a in side] for side in (batch.before, batch.after))
        for i, op in enumerate(batch.op.tolist()):
            new = tuple(column[i] for column in after)
            if op == 0:
                with_after[new[0]] = table[new[0]] = new[1:]
            elif op == 2:
                del table[before[0][i]]
            else:
                update(table, before[0][i], new, minimal=new[0] is None)
    for number, row in run.inserted.items():
        assert with_after[number] == row, number
    assert table == run.final


def update(table: dict[int, Row], key: int, new: tuple[Any, ...], *, minimal: bool) -> None:
    if minimal:  # the one column that the statement set
        row = list(table[key])
        row[COLUMNS.index("n")] = new[1 + COLUMNS.index("n")]
        table[key] = tuple(row)
    else:
        table[key] = new[1:]


def output_of(data: bytes, database: str) -> Any:
    """The output columns of the table, as its first table map tells them."""
    maps = (event for _, event in decode_file(data) if isinstance(event, TableMapEvent))
    return next(compile_layout(m, None, None, ValuePolicy()).outputs for m in maps if m.database == database)


@pytest.mark.parametrize("name", [name for name in CASES if name != "plain"])
@pytest.mark.parametrize("shape", ["envelope", "flat", "variant"])
def test_both_decoders_agree(recorded: dict[str, Recorded], name: str, shape: Any) -> None:
    database = f"d{list(CASES).index(name)}"
    check_twin(recorded[name].data, Tables({f"{database}.t": None}), DecodeOptions(shape=shape))


@pytest.mark.parametrize("name", CASES)
def test_rows_are_counted_the_same(recorded: dict[str, Recorded], name: str) -> None:
    database = f"d{list(CASES).index(name)}"
    tables = Tables({f"{database}.t": None})
    _, counts = count_rows(recorded[name].data, tables, checksum=True)
    _, plain = count_rows(recorded["plain"].data, Tables({"d0.t": None}), checksum=True)
    assert sum(counts) == sum(plain) + 2 * (HUGE_ID in recorded[name].inserted)  # inserted and updated
    assert sum(counts) > 500


def test_statements_are_inflated(recorded: dict[str, Recorded]) -> None:
    events = [event for _, event in decode_file(recorded["both"].data) if isinstance(event, QueryEvent)]
    (alter,) = [event for event in events if event.query.startswith(b"ALTER TABLE")]
    assert alter.compressed
    assert alter.query.count(b"worth compressing") == 10


def test_unwanted_tables_cost_no_values(recorded: dict[str, Recorded]) -> None:
    """Columns that are not asked for, and tables that are only counted, keep their values as stored."""
    output = [column for column in output_of(recorded["both"].data, "d4") if column.name in ("id", "s")]
    decoded = kernel_rows(recorded["both"].data, RangeDecoder(Tables({"d4.t": None}), DecodeOptions(), output))
    found = dict(zip(*(array.to_pylist() for array in decoded.after), strict=True))
    assert found[102] is None or found[102] == "a"
    assert len(found) > 200
