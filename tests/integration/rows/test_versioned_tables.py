"""System-versioned tables: history rows are told from current ones, as many as SELECT ... FOR SYSTEM_TIME ALL finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.types.types import ValuePolicy, output_column
from replica.schema.catalog import columns_query, keys_query, read_catalog
from tests.kit.some import some
from tests.unit.rows.twin import Tables, check_twin, kernel_rows

if TYPE_CHECKING:
    from replica.rows.types.types import OutputColumn
    from replica.schema.table import TableSchema
    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server
TABLES = {
    "implicit": "id INT PRIMARY KEY, x VARCHAR(20), doc TEXT, UNIQUE (doc)) WITH SYSTEM VERSIONING",
    "keyless": "id INT, x VARCHAR(20)) WITH SYSTEM VERSIONING",
    "own_names": "id INT PRIMARY KEY, since TIMESTAMP(6) GENERATED ALWAYS AS ROW START, "
    "until TIMESTAMP(6) GENERATED ALWAYS AS ROW END, x VARCHAR(20), PERIOD FOR SYSTEM_TIME (since, until)) "
    "WITH SYSTEM VERSIONING",
    "parts": "id INT PRIMARY KEY, x VARCHAR(20), bare INT WITHOUT SYSTEM VERSIONING) WITH SYSTEM VERSIONING "
    "PARTITION BY SYSTEM_TIME (PARTITION past HISTORY, PARTITION present CURRENT)",
    "plain": "id INT PRIMARY KEY, x VARCHAR(20))",
}
PERIOD = ["row_start", "row_end"]
SHAPES: tuple[Literal["envelope", "flat"], ...] = ("envelope", "flat")


def catalog(server: MariaDb) -> dict[str, TableSchema]:
    found, arguments = columns_query([("versions", None)])
    keys, key_arguments = keys_query([("versions", None)])
    tables = read_catalog(server.sql(found, args=arguments), server.sql(keys, args=key_arguments))
    return {schema.table: schema for schema in tables.values()}


@pytest.mark.parametrize("row_image", ["FULL", "MINIMAL", "NOBLOB"])
@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_history_rows(server: MariaDb, row_image: str, metadata: str) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE versions",
        *(f"CREATE TABLE versions.{name} ({rest}" for name, rest in TABLES.items()),
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        "FLUSH BINARY LOGS",
        f"SET binlog_row_image = {row_image}",
        *(
            statement
            for name in TABLES
            for statement in (
                f"INSERT INTO versions.{name} (id, x) VALUES (1, 'one'), (2, 'two')",
                f"UPDATE versions.{name} SET x = 'changed' WHERE id = 1",
                f"DELETE FROM versions.{name} WHERE id = 2",
                f"REPLACE INTO versions.{name} (id, x) VALUES (1, 'replaced')",
            )
        ),
        "SET GLOBAL binlog_row_metadata = NO_LOG",
    )
    data = (server.datadir / server.binlogs()[-1]).read_bytes()
    schemas = catalog(server)

    for name, schema in some(schemas.items()):
        from_stream = metadata == "FULL" and name != "own_names"
        tables = Tables({f"versions.{name}": None if from_stream else schema})
        decoded = check_twin(data, tables, DecodeOptions())
        if name == "plain":
            assert set(decoded.history) == {None}
            continue
        assert schema.versioned
        assert None not in decoded.history
        closed = server.value(f"SELECT COUNT(*) FROM versions.{name} FOR SYSTEM_TIME ALL") - server.value(
            f"SELECT COUNT(*) FROM versions.{name}"
        )
        assert sum(map(bool, decoded.history)) == closed >= 2

        # What Spark sees: the period among the columns, and whoever does not ask for it is told all the same.
        names = [column.name for column in schema.columns]
        assert names[-2:] == PERIOD or name == "own_names"
        outputs = [output_column(column, ValuePolicy()) for column in schema.columns]
        for output in (outputs, outputs[:2]):
            for shape in SHAPES:
                check_shape(data, tables, shape, output, decoded.history)


def check_shape(
    data: bytes,
    tables: Tables,
    shape: Literal["envelope", "flat"],
    output: list[OutputColumn],
    history: list[bool | None],
) -> None:
    """Flat rows but for the images before an update, which are of another version."""
    found = kernel_rows(data, RangeDecoder(tables, DecodeOptions(shape=shape), output))
    rows = [closed for op, closed in zip(found.ops, found.history, strict=True) if shape != "flat" or op != 1]
    assert rows == history


def test_the_state_of_every_version(server: MariaDb) -> None:
    """SCD2: the last image of each (id, row_start) of history rows and of current ones is the server's table."""
    server.sql(
        "CREATE OR REPLACE DATABASE versions",
        "CREATE TABLE versions.t (id INT PRIMARY KEY, x INT) WITH SYSTEM VERSIONING",
        "FLUSH BINARY LOGS",
        "INSERT INTO versions.t VALUES (1, 10), (2, 20), (3, 30)",
        "UPDATE versions.t SET x = x + 1",
        "UPDATE versions.t SET x = x + 1 WHERE id = 2",
        "DELETE FROM versions.t WHERE id = 3",
        "INSERT INTO versions.t VALUES (3, 33)",
    )
    data = (server.datadir / server.binlogs()[-1]).read_bytes()
    schema = catalog(server)["t"]
    output = [output_column(column, ValuePolicy()) for column in schema.columns]
    found = kernel_rows(data, RangeDecoder(Tables({"versions.t": schema}), DecodeOptions(), output))
    images = zip(*(array.to_pylist() for array in found.after), found.history, strict=True)
    current: dict[int, tuple[int, ...]] = {}
    past = []
    for number, x, start, end, closed in images:
        if closed:
            past.append((number, x, start, end))
            if current.get(number, (None, None))[1] == start:
                del current[number]
        else:
            current[number] = (x, start)
    query = "SELECT id, x, row_start, row_end FROM versions.t FOR SYSTEM_TIME"
    all_rows = server.sql("SET time_zone = '+00:00'", f"{query} ALL")
    now = server.sql("SET time_zone = '+00:00'", "SELECT id, x FROM versions.t ORDER BY id")
    assert [(number, x) for number, (x, _) in sorted(current.items())] == now
    closed_rows = {(number, x, start, end) for number, x, start, end in all_rows if end.year < 2038}
    naive = {(number, x, start.replace(tzinfo=None), end.replace(tzinfo=None)) for number, x, start, end in past}
    assert naive == closed_rows
