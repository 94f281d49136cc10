"""Writes the tables of type_tables.py on a real server, and compares every image of every row with SELECT.

In: a server, tables, a row image and a metadata level. Out: nothing, or the first difference: which column, which row,
which image, what was read, what the server says. Both decoders read the same log and have to agree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.rows.decode.decode import DecodeOptions
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy, output_column
from tests.integration.edges.log import Log, catalog
from tests.integration.rows.type_tables import same
from tests.unit.rows.twin import Tables, check_twin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.schema.table import TableSchema
    from tests.fixtures.mariadb import MariaDb
    from tests.integration.edges.log import Change
    from tests.integration.rows.type_tables import Selected, TypeTable

DATABASE = "matrix"
VARIANT = DecodeOptions(shape="variant", invalid_dates="text")
TEXT = ValuePolicy("text")
LARGE = ("BLOB", "TEXT", "JSON")  # what NOBLOB leaves out if it did not change; geometries stay


Written = tuple[Log, list[tuple["TypeTable", "Selected", "Selected"]]]


def written(
    server: MariaDb, tables: Sequence[TypeTable], image: str, metadata: str, *, compress: bool = False
) -> Written:
    """A binlog of inserts, updates and deletes; per table what SELECT gave after the first two."""
    found = []
    with server.connect(conv={}) as connection, connection.cursor() as cursor:
        run = cursor.execute
        run("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES', character_set_connection = utf8mb4")
        run(f"SET SESSION binlog_row_image = {image}")
        run(f"CREATE OR REPLACE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        run(f"USE {DATABASE}")
        for table in tables:
            run(table.create)
        run(f"SET GLOBAL binlog_row_metadata = {metadata}")
        run(f"SET GLOBAL log_bin_compress = {int(compress)}")
        run("FLUSH BINARY LOGS")
        for table in tables:
            run(table.insert)
            inserted = table.select(cursor)
            for update in table.updates:
                run(update)
            found.append((table, inserted, table.select(cursor)))
            run(table.delete)
        run("SET GLOBAL binlog_row_metadata = NO_LOG")
        run("SET GLOBAL log_bin_compress = 0")
    log = Log((server.datadir / server.binlogs()[-1]).read_bytes(), catalog(server, DATABASE))
    return log, found


def large(table: TypeTable) -> frozenset[str]:
    return frozenset(
        f"{kind}{i}"
        for i, case in enumerate(table.cases)
        for kind in "nm"
        if any(word in case.declaration.split("(")[0].upper() for word in LARGE)
    )


def lacking(table: TypeTable, image: str, op: str) -> tuple[frozenset[str], frozenset[str]]:
    """The columns that should be absent, before and after."""
    nothing: frozenset[str] = frozenset()
    if op == "insert" or image == "FULL":
        return nothing, nothing
    if image == "NOBLOB":
        blobs = large(table)
        return blobs, (blobs - table.nullable if op == "update" else nothing)
    before = table.columns - {"id"} if image == "MINIMAL" else nothing
    return before, (table.columns - table.nullable if op == "update" else nothing)


def check_images(table: TypeTable, change: Change, sides: tuple[Selected | None, Selected | None], image: str,
                 schema: TableSchema, catalog_only: frozenset[str]) -> None:  # fmt: skip
    columns = {column.name: column for column in schema.columns}
    assert change.absent == lacking(table, image, change.op), (table.name, change.op)
    # The key is not in the after image of a MINIMAL update.
    key = str((change.before or change.after or {})["id"])
    for found, selected, absent in zip((change.before, change.after), sides, change.absent, strict=True):
        assert (found is None) == (selected is None)
        for name, value in (found or {}).items():
            if name in absent:
                assert value is None
            elif name in catalog_only:
                assert value is None or isinstance(value, bytes), "known as bytes alone"
            else:
                said = (selected or {})[key][name]
                where = (columns[name].column_type, name, key, change.op, value, said)
                assert same(value, said, columns[name]), where


def sides_of(op: str, inserted: Selected, updated: Selected) -> tuple[Selected | None, Selected | None]:
    return {"insert": (None, inserted), "update": (inserted, updated), "delete": (updated, None)}[op]


def check_order(table: TypeTable, changes: list[Change], inserted: Selected, updated: Selected) -> None:
    """Every row is inserted and deleted; those that SELECT shows changed are updated, others may be, once at most."""
    ops = [change.op for change in changes]
    updates = [str((change.before or {})["id"]) for change in changes if change.op == "update"]
    assert ops == ["insert"] * table.rows + ["update"] * len(updates) + ["delete"] * table.rows
    assert len(set(updates)) == len(updates)
    assert {key for key, row in inserted.items() if row != updated[key]} <= set(updates) <= set(inserted)


def check_layout(table: TypeTable, log: Log, schema: TableSchema, unknown: frozenset[str], *, named: bool) -> None:
    """What Spark was told before the first event is what the events bring."""
    layout = compile_layout(log.table_map(table.name, DATABASE), None if named else schema, None, TEXT)
    assert [column.key for column in layout.columns] == [column.name == "id" for column in layout.columns]
    assert {column.name for column in layout.columns if column.nullable} == table.nullable
    for output, column in zip(layout.outputs, schema.columns, strict=True):
        assert column.name in unknown or output == output_column(column, TEXT)


def check(log: Log, found: list[tuple[TypeTable, Selected, Selected]], image: str, *, with_catalog: bool) -> None:
    """Every row change of these tables, through both decoders, typed and as VARIANT."""
    for table, inserted, updated in found:
        schema = log.catalog[DATABASE, table.name]
        alone = log.only(table.name, DATABASE)
        changes = alone.changes(table.name, with_catalog=with_catalog, database=DATABASE)
        check_order(table, changes, inserted, updated)
        unknown = frozenset(
            f"{kind}{i}"
            for i, case in enumerate(table.cases)
            for kind in "nm"
            if case.catalog_only and not with_catalog
        )
        check_layout(table, alone, schema, unknown, named=not with_catalog)
        for change in changes:
            check_images(table, change, sides_of(change.op, inserted, updated), image, schema, unknown)
    names = {f"{DATABASE}.{table.name}": log.catalog[DATABASE, table.name] for table, _, _ in found}
    check_twin(log.data, Tables(names if with_catalog else dict.fromkeys(names)), VARIANT)
