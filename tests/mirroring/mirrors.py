"""A mirror under test: its runs in the workbench's Spark, and its targets beside the server's SELECT.

Targets are read by delta-rs where it gives the values that Spark gives: a scan by Spark takes a second and a half.
`test_native.py` holds that both read the same rows.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from deltalake.exceptions import DeltaError

from streaming_source.mirroring import sink
from streaming_source.mirroring.control.target_names import TargetNames
from streaming_source.sinks import delta

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.fixtures.mariadb import MariaDb
    from tests.recipes.workbench import Workbench

_NUMBERS = itertools.count(1)
_RUN = """
from streaming_source import mirror
{before}
query = mirror(spark, **{arguments!r})
try:
    query.awaitTermination()
finally:
    query.stop()
result = True
"""
_RESNAPSHOT = """
from pyspark_mariadb_binlog import mirror_resnapshot
mirror_resnapshot(spark, tables={tables!r}, into={into!r})
result = True
"""
_BREAK = (
    f"import {sink.__name__} as sink"
    """
whole = sink.write_control
def broken(spark, control, rows, **more):
    rows = list(rows)
    if any(row.rows for row in rows):
        raise RuntimeError("this batch is broken off")
    whole(spark, control, rows, **more)
sink.write_control = broken
"""
)
_MEND = "sink.write_control = whole"
PEOPLE: Final = (
    (
        "CREATE TABLE people (id INT PRIMARY KEY, secret TEXT, card CHAR(19) NOT NULL, pin INT, email VARCHAR(50),"
        " born DATETIME(3), code VARBINARY(9), country CHAR(2), at TIME(2), price DECIMAL(20,9))"
    ),
    (
        "INSERT INTO people SELECT seq, 'MARKER', 'MARKER', seq, CONCAT('é', seq), '2001-02-03 04:05:06.700', "
        "CHAR(200, seq USING BINARY), IF(seq % 2, 'DE', 'FR'), SEC_TO_TIME(seq * 900), seq / 7 FROM seq_1_to_100"
    ),
)
"""Statements for a table of 100 rows, whose columns rules hash, mask and leave out."""
_FOLDER = f"from {delta.__name__} import known_folder; result = known_folder(spark, {{table!r}})"
_SAME_IN_BOTH: Final = (
    *(pa.types.is_integer, pa.types.is_boolean, pa.types.is_decimal, pa.types.is_date),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
)


def read_by_delta_rs(folder: str | None, columns: str = "*") -> list[list[Any]] | None:
    """Rows of a table; None if there is none, or if Spark gives some of its values as other objects of Python."""
    if folder is None or not Path(folder).is_dir():
        return None
    try:
        table = DeltaTable(folder)
        read = pa.table(QueryBuilder().register("t", table).execute(f"SELECT {columns} FROM t").read_all())
    except DeltaError:
        return None
    plain = all(any(same(field.type) for same in _SAME_IN_BOTH) for field in read.schema)
    return [list(row.values()) for row in read.to_pylist()] if plain else None


def fill_shop(primary: MariaDb, *tables: str, database: str = "shop") -> None:
    """Make these tables in a database, of 30 rows each: the key, and the same number again."""
    primary.add_user()
    primary.sql(f"CREATE DATABASE {database}")
    for table in tables:
        primary.sql(
            f"USE {database}",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)",
            f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_30",
        )


class Mirrored:
    """One mirror over any number of runs."""

    def __init__(
        self, workbench: Workbench, primary: MariaDb, database: str, folder: Path, options: Mapping[str, object]
    ) -> None:
        self.workbench = workbench
        self.primary = primary
        self.database = database
        self.lake = f"lake_{next(_NUMBERS)}"
        self.checkpoint = folder / "checkpoint"
        self.arguments: dict[str, Any] = {
            "tables": f"{database}.*",
            "into": f"{self.lake}.{{table}}",
            "checkpointLocation": str(self.checkpoint),
            "host": primary.host,
            "port": primary.port,
            "user": "repl",
            "password": "replica-secret",
            "relayDir": str(folder / "relay"),
            "trigger": {"availableNow": True},
            "writer": os.environ.get("MIRROR_WRITER"),
            **options,
        }

    def run(self, *, before: str = "", **more: object) -> None:
        """Bring in what there is, and end; `before` is code that runs in the driver first."""
        self.workbench.run(_RUN.format(arguments=self.arguments | more, before=before))

    def break_off(self, **more: object) -> None:
        """Bring a batch into its targets, and crash before it is written down that it is there."""
        with pytest.raises(AssertionError, match="this batch is broken off"):
            self.run(before=_BREAK, **more)
        self.workbench.run(_MEND)

    def resnapshot(self, *tables: str) -> None:
        """Ask for a re-snapshot of tables, which the next run does."""
        named, into = [f"{self.database}.{table}" for table in tables], self.arguments["into"]
        self.workbench.run(_RESNAPSHOT.format(tables=named, into=into))

    @property
    def _names(self) -> TargetNames:
        return TargetNames(self.arguments["into"])

    @property
    def control(self) -> str:
        """The name of the control table."""
        return self._names.control

    def folder(self, table: str) -> str | None:
        """Where a table of Spark's catalog lies; None if there is none."""
        found: str | None = self.workbench.run(_FOLDER.format(table=table))
        return found

    def states(self) -> dict[str, tuple[str, str | None]]:
        """State and error of each table, by its name on the server."""
        rows = read_by_delta_rs(self.folder(self._names.control), "source_table, state, error")
        if rows is None:
            code = f"result = [list(r) for r in spark.table('{self._names.control}')"
            rows = self.workbench.run(f"{code}.select('source_table', 'state', 'error').collect()]")
        return {name: (state, error) for name, state, error in rows}

    def writers(self) -> dict[str, str | None]:
        """What wrote the last rows of each table, by its name on the server, with the reason if it was Spark."""
        rows = read_by_delta_rs(self.folder(self._names.control), "source_table, writer")
        if rows is None:
            code = f"[list(r) for r in spark.table('{self._names.control}').select('source_table', 'writer').collect()]"
            rows = self.workbench.run(f"result = {code}")
        return dict(rows)

    def assert_native(self, *tables: str) -> None:
        """Assert that tasks wrote these tables, unless the whole run is one of Spark's writer."""
        if self.arguments["writer"] != "spark":
            found = self.writers()
            assert {table: found[table] for table in tables} == dict.fromkeys(tables, "native")

    def target(self, table: str) -> list[list[str | None]]:
        """Rows of a target as text, sorted."""
        name = self._names.target((self.database, table))
        there = read_by_delta_rs(self.folder(name))
        if there is not None:
            return _sorted([[None if value is None else str(value) for value in row] for row in there])
        rows = f"spark.table('{name}').collect()"
        return _sorted(self.workbench.run(f"result = [[None if v is None else str(v) for v in r] for r in {rows}]"))

    def columns(self, table: str, *names: str) -> list[list[Any]]:
        """Some columns of a target's rows, sorted; of types that all readers give alike."""
        found = read_by_delta_rs(self.folder(self._names.target((self.database, table))), ", ".join(names))
        assert found is not None, names
        return sorted(found)

    def source(self, table: str) -> list[list[str | None]]:
        """Rows of the server as text, sorted."""
        rows = self.primary.sql(f"SELECT * FROM `{self.database}`.`{table}`")
        return _sorted([[None if value is None else str(value) for value in row] for row in rows])

    def operations(self, table: str) -> list[str]:
        """What Delta says of the commits of a target, the oldest first.

        A DELETE of all rows, by which a target with the same columns is made again, is CREATE.
        """
        history = f"spark.sql('DESCRIBE HISTORY {self._names.target((self.database, table))}').orderBy('version')"
        listed = f"[(r['operation'], r['operationParameters'].get('predicate', '[]')) for r in {history}.collect()]"
        done: list[tuple[str, str]] = self.workbench.run(f"result = {listed}")
        return ["CREATE" if operation == "DELETE" and where == "[]" else operation for operation, where in done]

    def times_made(self, table: str) -> int:
        """Return how often a target was made, by either writer."""
        return sum(one.startswith("CREATE") for one in self.operations(table))

    def assert_equal(self, *tables: str) -> None:
        for table in tables:
            assert self.target(table) == self.source(table), table


def _sorted(rows: list[list[str | None]]) -> list[list[str | None]]:
    return sorted(rows, key=lambda row: [value or "" for value in row])
