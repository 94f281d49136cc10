"""Every character set and collation of the server, in every type that holds text: what we read is what SELECT gives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from replica.live.embedded import EmbeddedReplica
from replica.protocol.charset import CHARSETS, charset_of
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.types.types import ValuePolicy, output_column
from replica.schema.catalog import columns_query, doubtful_labels, keys_query, read_catalog
from tests.fixtures.replicas import replica_config
from tests.unit.rows.twin import Tables, check_twin, kernel_rows

if TYPE_CHECKING:
    from pathlib import Path

    from replica.schema.table import TableSchema
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server
OF_MULTI_BYTE_SETS = {
    "big5": "中文", "cp932": "テ漢", "eucjpms": "テ漢", "euckr": "가나", "gb2312": "中文", "gbk": "中文",
    "sjis": "テ漢", "ujis": "テ漢", "ucs2": "é€漢", "utf16": "é€😀", "utf16le": "é€😀", "utf32": "é€😀",
    "utf8mb3": "é€漢", "utf8mb4": "é€😀",
}  # fmt: skip


def own_characters(name: str) -> str:
    """Three characters that a set has and most others have not."""
    table = CHARSETS[name].table
    if table is None:
        return OF_MULTI_BYTE_SETS[name]
    return "".join(c for c in table if c.isalpha() and c > "\x7f")[:3] or "xyz"


def values(name: str) -> list[str]:
    text = own_characters(name)
    return [text, f"a{text}b  ", "", "plain"]


def columns(character_set: str, name: str, collation: str = "") -> str:
    clause = f"CHARACTER SET {character_set} {collation}"
    labels = ", ".join(f"'{label}'" for label in ("plain", own_characters(name), f"a{own_characters(name)}b"))
    return (
        f"id INT PRIMARY KEY, c CHAR(20) {clause}, v VARCHAR(90) {clause}, l VARCHAR(300) {clause}, t TEXT {clause}, "
        f"z VARCHAR(90) COMPRESSED {clause}, e ENUM({labels}) {clause}, s SET({labels}) {clause}"
    )


def name_of(character_set: str) -> str:
    return "utf8mb3" if character_set == "utf8" else character_set


def write(cursor: Any, table: str, name: str) -> list[tuple[Any, ...]]:
    """Rows of every value; what SELECT gives."""
    for number, value in enumerate(values(name)):
        label = value.strip() or "plain"
        bits = 7 if number == 1 else 2
        cursor.execute(
            f"INSERT INTO {table} VALUES (%s, %s, %s, %s, %s, %s, %s, %s)",
            (number, *[value] * 5, label, bits),
        )
    cursor.execute(f"INSERT INTO {table} (id) VALUES (99)")
    cursor.execute(f"SELECT * FROM {table} ORDER BY id")
    return list(cursor.fetchall())


def catalog(server: MariaDb, database: str) -> dict[str, TableSchema]:
    found, arguments = columns_query([(database, None)])
    keys, key_arguments = keys_query([(database, None)])
    tables = read_catalog(server.sql(found, args=arguments), server.sql(keys, args=key_arguments))
    schemas = {}
    for schema in tables.values():
        columns = list(schema.columns)
        for doubtful in doubtful_labels(schema):
            columns[doubtful.column] = doubtful.answered(server.sql(doubtful.query()))
        schemas[schema.name] = replace(schema, columns=tuple(columns))
    return schemas


def check(data: bytes, schemas: dict[str, TableSchema], selected: dict[str, list[tuple[Any, ...]]], how: str) -> None:
    """Typed, by the kernels, against SELECT; as VARIANT, by both decoders, against each other."""
    for table, expected in selected.items():
        schema = schemas[table]
        tables = Tables({table: None if how == "FULL" else schema})
        output = [output_column(column, ValuePolicy()) for column in schema.columns]
        decoded = kernel_rows(data, RangeDecoder(tables, DecodeOptions(invalid_text="error"), output))
        assert list(zip(*(array.to_pylist() for array in decoded.after), strict=True)) == expected, table
    tables = Tables({table: None if how == "FULL" else schemas[table] for table in selected})
    check_twin(data, tables, DecodeOptions(shape="variant", invalid_text="error"))


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_every_set_in_every_type(server: MariaDb, metadata: str) -> None:
    sets = [str(row[0]) for row in server.sql("SHOW CHARACTER SET") if row[0] != "binary"]
    assert {name_of(one) for one in sets} == set(CHARSETS)
    selected = {}
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
        cursor.execute("CREATE OR REPLACE DATABASE sets CHARACTER SET utf8mb4")
        cursor.execute("FLUSH BINARY LOGS")
        for one in sets:
            cursor.execute(f"CREATE TABLE sets.{one} ({columns(one, name_of(one))})")
            selected[f"sets.{one}"] = write(cursor, f"sets.{one}", name_of(one))
        cursor.execute("SET GLOBAL binlog_row_metadata = NO_LOG")
    data = (server.datadir / server.binlogs()[-1]).read_bytes()
    check(data, catalog(server, "sets"), selected, metadata)


def test_every_collation_leads_to_its_set(server: MariaDb) -> None:
    found = server.sql("SHOW COLLATION")
    by_id = {int(row[2]): name_of(str(row[1])) for row in found if row[1] and row[2]}
    applicable = server.sql("SELECT * FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY LIMIT 1")
    if len(applicable[0]) > 2:  # the uca1400 collations have an id for each set, told only here
        rows = server.sql("SELECT ID, CHARACTER_SET_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY")
        by_id |= {int(number): name_of(str(name)) for number, name in rows}
    assert len(by_id) > 300
    by_id = {number: name for number, name in by_id.items() if name != "binary"}
    assert {number: charset_of(number).name for number in by_id} == by_id


def test_the_collations_of_unicode_14(server: MariaDb) -> None:
    if tuple(map(int, server.value("SELECT VERSION()").split(".")[:2])) < (10, 10):
        assert not server.sql("SHOW COLLATION LIKE 'uca1400%'"), "then this server has them, and they are to be tried"
        return
    selected = {}
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata = FULL")
        cursor.execute("CREATE OR REPLACE DATABASE uca CHARACTER SET utf8mb4")
        cursor.execute("FLUSH BINARY LOGS")
        for number, collation in enumerate(("uca1400_ai_ci", "uca1400_as_cs", "uca1400_swedish_nopad_ai_cs")):
            for one in ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32"):
                table = f"uca.{one}_{number}"
                cursor.execute(f"CREATE TABLE {table} ({columns(one, one, f'COLLATE {collation}')})")
                selected[table] = write(cursor, table, one)
        cursor.execute("SET GLOBAL binlog_row_metadata = NO_LOG")
    data = (server.datadir / server.binlogs()[-1]).read_bytes()
    for how in ("FULL", "NO_LOG"):  # from the stream alone, then with the catalog as well
        check(data, catalog(server, "uca"), selected, how)


def test_labels_that_the_catalog_cannot_print_are_asked_for(server: MariaDb, tmp_path: Path) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE labels",
        "CREATE TABLE labels.`a``%` (e ENUM('a?', '😀', 'é', '?') CHARACTER SET utf8mb4, "
        "s SET('a', '😀😀') CHARACTER SET utf32, l ENUM('?') CHARACTER SET latin1) WITH SYSTEM VERSIONING",
    )
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(None)
        (table,) = replica.fetch_schema([("labels", None)]).values()
    assert [column.labels for column in table.columns] == [("a?", "😀", "é", "?"), ("a", "😀😀"), ("?",), None, None]
    assert [column.name for column in table.columns] == ["e", "s", "l", "row_start", "row_end"]


@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL", "FULL"])
def test_binary_labels_are_the_same_text_wherever_they_come_from(
    server: MariaDb, tmp_path: Path, metadata: str
) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE labels",
        "CREATE TABLE labels.t (id INT PRIMARY KEY, e ENUM('a', 'é', '😀', x'FF', '?', 'b '), "
        "s SET('m', '😀', x'FE'), g ENUM('é', 'y') AS (1) PERSISTENT, c CHAR(4)) DEFAULT CHARSET=binary",
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        "FLUSH BINARY LOGS",
        "INSERT INTO labels.t(id, e, s, c) VALUES (1, 1, 7, 'x'), (2, 2, 0, ''), (3, 3, 2, NULL), (4, 4, 4, ''),"
        "(5, 5, 1, ''), (6, 6, NULL, '')",
        "SET GLOBAL binlog_row_metadata = NO_LOG",
    )
    data = (server.datadir / server.binlogs()[-1]).read_bytes()
    with EmbeddedReplica(replica_config(server), tmp_path) as replica:
        replica.start(None)
        (schema,) = replica.fetch_schema([("labels", None)]).values()
    selected = server.sql("SELECT id, HEX(e), HEX(s), HEX(g) FROM labels.t")
    said = [(number, *(cell and text_of(cell) for cell in cells)) for number, *cells in selected]
    for known in (schema, None) if metadata == "FULL" else (schema,):  # None: from the stream alone
        tables = Tables({"labels.t": known})
        rows = check_twin(data, tables, DecodeOptions())
        assert list(zip(*(column.to_pylist() for column in rows.after[:4]), strict=True)) == said
        check_twin(data, tables, DecodeOptions(shape="variant"))


def text_of(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal).decode("utf-8", "replace")


@pytest.mark.parametrize("name", ["utf8mb3", "latin1", "gbk", "sjis", "utf16"])
def test_bytes_that_are_no_text_stop_nothing(server: MariaDb, name: str) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE damaged",
        f"CREATE TABLE damaged.t (id INT PRIMARY KEY, c VARCHAR(20) CHARACTER SET {name}) ENGINE = MyISAM",
        "SET GLOBAL binlog_checksum = NONE",
        "INSERT INTO damaged.t VALUES (1, 'abcdefgh')",
        "SET GLOBAL binlog_checksum = CRC32",
    )
    data = bytearray((server.datadir / server.binlogs()[-2]).read_bytes())
    # No client can write such bytes into every set, but files, backups and ALTER TABLE can: so the log is changed.
    good = "abcdefgh".encode(CHARSETS[name].codec)
    bad = b"\xd8\0\xd8\0" if name == "utf16" else b"\x81" if name == "latin1" else b"\x80\xff"
    at = data.rindex(good)
    data[at + len(good) - len(bad) : at + len(good)] = bad
    schemas = catalog(server, "damaged")
    (text,) = check_twin(bytes(data), Tables(dict(schemas)), DecodeOptions(), checksum=False).after[1].to_pylist()
    assert text.startswith("abcdef")
    assert ("\ufffd" in text) == (name != "latin1"), "latin1 has a character for every byte"
