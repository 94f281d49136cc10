"""Every type as Spark collects it, typed and as VARIANT, is what the server's SELECT gives, on every version."""

from __future__ import annotations

import base64
import json
import struct
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.installation import installations
from tests.fixtures.mariadb import MariaDb
from tests.integration.edges.log import version
from tests.integration.rows.type_cases import CASES
from tests.integration.rows.type_checks import DATABASE, sides_of, written
from tests.integration.rows.type_tables import Selected, same, tables

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.table import ColumnSchema

pytestmark = [pytest.mark.spark, pytest.mark.server]

BINARY = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "geometry", "point", "polygon")
EXACT = Context(prec=65)


def read(spark: SparkSession, path: Path, **options: str) -> DataFrame:
    reader = spark.read.format("mariadb-binlog").option("path", str(path)).option("invalidDates", "text")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


Row = tuple[str, str, Any, Any, frozenset[str], frozenset[str]]
"""Table, op, both images as dicts, and the columns that each lacks."""


def check(rows: list[Row], selected: dict[str, tuple[Selected, Selected]],
          columns: dict[str, dict[str, ColumnSchema]]) -> None:  # fmt: skip
    for table, op, before, after, *absent in rows:
        key = str((before or after)["id"])
        for found, lacking, side in zip((before, after), absent, sides_of(op, *selected[table]), strict=True):
            assert (found is None) == (side is None)
            for name, value in (found or {}).items():
                column = columns[table][name]
                said = (side or {})[key][name]
                if name in lacking:
                    assert value is None
                else:
                    assert same(value, said, column), (column.column_type, name, op, value, said)


def formats() -> list[tuple[str, str, str]]:
    """(server version, metadata, image): everything logged on each version, less on the oldest and the newest.

    (tests/integration/rows/test_type_matrix.py has all of them on every version, without Spark.)
    """
    versions = list(installations()) or ["no-server"]  # an empty list would skip the test
    whole = [(version, "FULL", "FULL") for version in versions]
    return [*whole, (versions[0], "MINIMAL", "NOBLOB"), (versions[-1], "NO_LOG", "MINIMAL")]


@pytest.mark.parametrize(("short", "metadata", "image"), formats())
def test_every_type_is_what_select_gave(
    spark: SparkSession, short: str, tmp_path: Path, metadata: str, image: str
) -> None:
    with MariaDb(short) as server:
        known = tables([case for case in CASES if case.since <= version(server)])
        log, found = written(server, known, image, metadata)
        # UUID, INET and VECTOR are bytes in a log, and without metadata all names are missing: the statements that
        # created the tables tell more.
        statements = [server.sql(f"SHOW CREATE TABLE {DATABASE}.{table.name}")[0][1] for table in known]
    path, schema = tmp_path / "types.binlog", tmp_path / "schema.sql"
    path.write_bytes(log.data)
    schema.write_text(f"USE {DATABASE};\n" + ";\n".join(statements) + ";\n", encoding="utf-8")
    selected = {table.name: (inserted, updated) for table, inserted, updated in found}
    columns = {name: {c.name: c for c in log.catalog[DATABASE, name].columns} for name in selected}
    expected = sum(3 * table.rows for table in known)

    typed = [
        (row.table, row.op, row.before and row.before.asDict(), row.after and row.after.asDict(), *lacking(row.absent))
        for table in known
        for row in read(spark, path, table=f"{DATABASE}.{table.name}", schemaFile=str(schema)).collect()
    ]
    assert len(typed) == expected
    check(typed, selected, columns)

    # Python's own view of a VARIANT rounds decimals to 28 digits: Spark's text has them all.
    texts = read(spark, path, tables=f"{DATABASE}.*", schemaFile=str(schema)).selectExpr(
        "table", "op", "to_json(before) AS before", "to_json(after) AS after", "absent"
    )
    variant = [
        (
            row.table,
            row.op,
            *(plain(text, columns[row.table]) for text in (row.before, row.after)),
            *lacking(row.absent),
        )
        for row in texts.collect()
    ]
    assert len(variant) == expected
    for table, op, before, after, *absent in variant:
        for found, names in zip((before, after), absent, strict=True):
            assert found is None or not names & found.keys(), (table, op, "what is absent is no member")
    check(variant, selected, columns)


def lacking(absent: Any) -> tuple[frozenset[str], frozenset[str]]:
    """The column `absent` of a row; NULL where both images are whole."""
    return (frozenset(absent.before or ()), frozenset(absent.after or ())) if absent else (frozenset(), frozenset())


def plain(text: str | None, columns: dict[str, ColumnSchema]) -> dict[str, Any] | None:
    """A VARIANT object as Spark prints it, with the values that JSON has no form for as they were."""
    if text is None:
        return None
    values: dict[str, Any] = json.loads(text, parse_float=str)
    for name, value in values.items():
        column = columns[name]
        if value is None:
            continue
        if column.data_type in BINARY:
            values[name] = base64.b64decode(value)
        elif column.data_type == "float":  # printed as short as a float can be: 0.1
            (values[name],) = struct.unpack("<f", struct.pack("<f", float(value)))
        elif column.data_type == "double":
            values[name] = float(value)
        elif column.data_type == "vector":
            values[name] = [float(number) for number in value]
        elif column.data_type == "decimal":
            values[name] = Decimal(value).quantize(Decimal(1).scaleb(-(column.scale or 0)), context=EXACT)
    return values
