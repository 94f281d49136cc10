"""What the reference decoder reads from a real binlog is what the same server's SELECT gives.

Images, columns that SELECT does not show, old formats, catalogs that no longer fit, every character of every set. Every
type is in test_type_matrix.py. The kernels are compared with the reference elsewhere: their truth comes from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pymysql
import pytest

from replica.errors import SchemaError, UnsupportedColumnError
from replica.protocol.charset import CHARSETS
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.rows.rows_event import RowsEvent, RowsKind
from replica.protocol.rows.table_map import TableMapEvent
from replica.protocol.rows.values import format_time
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from replica.schema.catalog import omits_generated
from tests.integration.edges.log import catalog, version
from tests.kit.oracle.images import plain_rows
from tests.kit.oracle.rows import RowChange, read_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.tables.layout import RowLayout
    from replica.schema.table import TableSchema
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server
TEXT = ValuePolicy("text")


def changes(
    server: MariaDb, schemas: Mapping[tuple[str, str], TableSchema] | None
) -> Iterator[tuple[RowLayout, RowChange]]:
    """All row changes of the server's last binlog, with dates as text."""
    maps: dict[int, tuple[RowLayout, tuple[ColumnDef, ...]]] = {}
    data = (server.datadir / server.binlogs()[-1]).read_bytes()
    for _, event in decode_file(data):
        if isinstance(event, TableMapEvent):
            schema = schemas and schemas[event.database, event.table]
            maps[event.table_id] = compile_layout(event, schema or None, None, TEXT), event.columns
        elif isinstance(event, RowsEvent):
            layout, columns = maps[event.table_id]
            for change in read_rows(plain_rows(event, columns, layout), layout, TEXT):
                yield layout, change


IMAGES = ("FULL", "MINIMAL", "NOBLOB", "FULL_NODUP")


@pytest.mark.parametrize("image", IMAGES)
def test_images_of_insert_update_and_delete(server: MariaDb, image: str) -> None:
    if image == "FULL_NODUP" and version(server) < (11, 4):
        with pytest.raises(pymysql.err.OperationalError, match="FULL_NODUP"):
            server.sql("SET SESSION binlog_row_image = FULL_NODUP")
        return
    server.sql(
        "CREATE OR REPLACE DATABASE images",
        "CREATE TABLE images.k (id INT PRIMARY KEY, name VARCHAR(20), body BLOB, qty INT DEFAULT 5)",
        "FLUSH BINARY LOGS",
        f"SET SESSION binlog_row_image = {image}",
        "INSERT INTO images.k VALUES (1, 'one', 'b', NULL)",
        "UPDATE images.k SET name = NULL WHERE id = 1",
        "UPDATE images.k SET id = 2",
        "DELETE FROM images.k",
    )
    rows = [change for _, change in changes(server, catalog(server, "images"))]

    whole = {"id": 1, "name": "one", "body": b"b", "qty": None}
    assert [row.kind for row in rows] == [RowsKind.INSERT, RowsKind.UPDATE, RowsKind.UPDATE, RowsKind.DELETE]
    assert [(row.before, row.after) for row in rows] == {
        "FULL": [
            (None, whole),
            (whole, whole | {"name": None}),
            (whole | {"name": None}, whole | {"name": None, "id": 2}),
            (whole | {"name": None, "id": 2}, None),
        ],
        "MINIMAL": [(None, whole), ({"id": 1}, {"name": None}), ({"id": 1}, {"id": 2}), ({"id": 2}, None)],
        "FULL_NODUP": [
            (None, whole),
            (whole, {"name": None}),
            (whole | {"name": None}, {"id": 2}),
            (whole | {"name": None, "id": 2}, None),
        ],
        "NOBLOB": [
            (None, whole),
            ({"id": 1, "name": "one", "qty": None}, {"id": 1, "name": None, "qty": None}),
            ({"id": 1, "name": None, "qty": None}, {"id": 2, "name": None, "qty": None}),
            ({"id": 2, "name": None, "qty": None}, None),
        ],
    }[image]


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_columns_that_select_does_not_show(server: MariaDb, metadata: str) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE hidden",
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        "CREATE TABLE hidden.v (id INT PRIMARY KEY, twice INT AS (id * 2) VIRTUAL, thrice INT AS (id * 3) PERSISTENT, "
        "quiet INT INVISIBLE DEFAULT 9) WITH SYSTEM VERSIONING",
        "CREATE TABLE hidden.u (id INT, doc BLOB UNIQUE, txt TEXT, UNIQUE (id, txt))",
        "CREATE TABLE hidden.w (id INT, doc BLOB UNIQUE) WITH SYSTEM VERSIONING",
        "FLUSH BINARY LOGS",
        "INSERT INTO hidden.v (id) VALUES (1)",
        "INSERT INTO hidden.u VALUES (1, 'x', NULL)",
        "INSERT INTO hidden.w VALUES (1, 'x')",
        "SET GLOBAL binlog_row_metadata = NO_LOG",
    )
    schemas = catalog(server, "hidden") if metadata == "NO_LOG" else None
    (_, versioned), (_, unique), (_, both) = changes(server, schemas)

    assert versioned.after is not None
    assert unique.after is not None
    assert both.after is not None
    assert list(versioned.after.items())[:4] == [("id", 1), ("twice", 2), ("thrice", 3), ("quiet", 9)]
    assert list(versioned.after)[4:] == ["row_start", "row_end"]
    assert versioned.after["row_end"] >= "2038-01-19 03:14:07.999999"
    assert list(unique.after) == ["id", "doc", "txt"]
    assert list(both.after) == ["id", "doc", "row_start", "row_end"]
    assert (versioned.history, unique.history, both.history) == (False, None, False)


def test_the_old_temporal_formats(server: MariaDb) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE old",
        "SET GLOBAL mysql56_temporal_format = OFF",
        "CREATE TABLE old.whole (d DATETIME, s TIMESTAMP NULL, t TIME)",
        "CREATE TABLE old.digits (d DATETIME(3))",
        "SET GLOBAL mysql56_temporal_format = ON",
        "SET time_zone = '+00:00', sql_mode = ''",
        "FLUSH BINARY LOGS",
        "INSERT INTO old.whole VALUES ('2024-02-29 23:59:59', '2038-01-19 03:14:07', '-838:59:59'), "
        "('0000-00-00', 0, '00:00:01'), ('9999-12-31 00:00:01', '2001-02-03 04:05:06', '100:00:00')",
        "INSERT INTO old.digits VALUES ('2024-02-29 23:59:59.123')",
    )
    select = server.sql("SET time_zone = '+00:00'", "SELECT CONCAT(d), CONCAT(s), CONCAT(t) FROM old.whole")
    found = changes(server, catalog(server, "old"))

    rows = [change.after for _, change in (next(found) for _ in select)]
    assert [(row["d"], row["s"], format_time(row["t"], 0)) for row in rows if row] == select
    with pytest.raises(UnsupportedColumnError, match=r"Column d of table old\.digits is datetime\(3\).*FORCE"):
        next(found)


def test_a_catalog_that_no_longer_fits_is_an_error_and_never_a_guess(server: MariaDb) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE stale",
        "CREATE TABLE stale.a (x INT, y INT)",
        "CREATE TABLE stale.b (x INT, y VARCHAR(10))",
        "FLUSH BINARY LOGS",
        "INSERT INTO stale.a VALUES (1, 2)",
    )
    binlog_of_a = server.binlogs()[-1]
    assert len(list(changes(server, catalog(server, "stale")))) == 1
    for change in ("ADD z INT", "MODIFY y BIGINT", "MODIFY y DECIMAL(5,2)", "DROP y", "MODIFY y VARCHAR(5)"):
        server.sql(f"ALTER TABLE stale.a {change}")
        assert server.binlogs()[-1] == binlog_of_a
        with pytest.raises(SchemaError, match=r"stale\.a.*(catalog|binlog).*binlog_row_metadata=FULL"):
            list(changes(server, catalog(server, "stale")))
        server.sql("CREATE OR REPLACE TABLE stale.a (x INT, y INT)")


def test_every_character_of_every_character_set(server: MariaDb) -> None:
    names = [str(row[0]) for row in server.sql("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS")]
    assert {name if name != "utf8" else "utf8mb3" for name in names} - {"binary"} == set(CHARSETS)
    server.sql("CREATE OR REPLACE DATABASE texts CHARACTER SET utf8mb4", "FLUSH BINARY LOGS")
    selected = {}
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        for name in names:
            if name == "binary":
                continue
            cursor.execute(f"CREATE TABLE texts.{name} (c VARCHAR(1000) CHARACTER SET {name}) ENGINE = MyISAM")
            rows = _samples(name)
            cursor.execute(
                f"INSERT INTO texts.{name} VALUES " + ",".join([f"(CONVERT(%s USING {name}))"] * len(rows)), rows
            )
            cursor.execute(f"SELECT c FROM texts.{name}")
            selected[name] = [str(row[0]) for row in cursor.fetchall()]

    decoded: dict[str, list[str]] = {name: [] for name in selected}
    for layout, change in changes(server, catalog(server, "texts")):
        assert change.after is not None
        decoded[layout.table].append(change.after["c"])

    for name, texts in selected.items():
        assert texts
        assert [len(text) for text in decoded[name]] == [len(text) for text in texts], name
        for ours, theirs in zip("".join(decoded[name]), "".join(texts), strict=True):
            # Where the server has no character it answers '?'. A Python codec may know one.
            assert ours == theirs or theirs in "?\N{REPLACEMENT CHARACTER}", name


def _samples(name: str) -> list[bytes]:
    """Bytes to be taken as text of a set: every single byte, or every code that our table knows, a lead byte a row."""
    charset = CHARSETS["utf8mb3" if name == "utf8" else name]
    if charset.max_bytes == 1:
        return [bytes([i]) for i in range(256)]
    if charset.codec.startswith("utf"):
        beyond = "" if charset.max_bytes < 4 else "😀𝄞"
        return [f"aé€ж漢\N{LATIN SMALL LETTER A WITH DIAERESIS}{beyond}".encode(charset.codec)]
    leads = [bytes([i]) for i in range(0x80, 0x100)]
    if charset.max_bytes == 3:
        leads = [b"\x8f" + lead for lead in leads] + [lead for lead in leads if lead != b"\x8f"]
    known = [[lead + bytes([i]) for i in range(0x40, 0x100)] for lead in leads]
    rows = [[code for code in codes if _one_character(charset.decode(code))] for codes in known]
    return [b"".join(row) for row in rows if row]


def _one_character(text: str) -> bool:
    return len(text) == 1 and text != "\N{REPLACEMENT CHARACTER}"


def test_generated_columns_are_in_the_images_that_we_say(server: MariaDb) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE generated",
        "CREATE TABLE generated.t (id INT PRIMARY KEY, a INT, v INT AS (a + 1), p INT AS (a * 2) PERSISTENT)",
        "FLUSH BINARY LOGS",
        "INSERT INTO generated.t (id, a) VALUES (1, 1)",
        "UPDATE generated.t SET a = 5",
        "DELETE FROM generated.t",
    )
    (_, inserted), (_, updated), (_, deleted) = changes(server, catalog(server, "generated"))
    assert inserted.after == {"id": 1, "a": 1, "v": 2, "p": 2}
    told = not omits_generated(server.value("SELECT VERSION()"))
    assert updated.before == {"id": 1, "a": 1} | ({"v": 2, "p": 2} if told else {})
    assert updated.after == {"id": 1, "a": 5} | ({"v": 6, "p": 10} if told else {})
    assert deleted.before == {"id": 1, "a": 5} | ({"v": 6, "p": 10} if told else {})
