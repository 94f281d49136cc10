"""The tables of a mirror that an audit compares: each target in the version that its control row refers to.

`mirrored_copies` returns one copy, with its position and key, for each table that is current, and the tables that
cannot be compared, with the reason. It reads the control table once, so that all rows are from one moment. A table that
is not a control table is an error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, DataLossError
from replica.schema.patterns import table_text
from replica.schema.stored import tables_from_json
from replica.snapshot.check.cascades import tables_above
from streaming_source.auditing.mirror.versions import version_of
from streaming_source.auditing.result import LeftOut
from streaming_source.schema.target_modes import live_rows
from streaming_source.sinks.short_errors import SPARK_ERRORS, first_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import Row, SparkSession

    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema

_COLUMNS: Final = (
    *("mirror", "source_database", "source_table", "target", "mode", "state", "keys", "position", "batch", "error"),
    *("rules", "definition"),
)
_FOREIGN_KEYS: Final = "foreign_keys"
"""A column that control tables of version 0.1 do not have. Their table definitions contain the foreign keys."""
_CURRENT: Final = "current"
_DROPPED: Final = "dropped"
"""State of a table that does not exist on the server any more, so its target has no counterpart."""


class MirroredCopy(NamedTuple):
    """A target as its control row describes it.

    `above`: all ancestors of the table by foreign keys, whose changes cascade into it. `unknown`: some ancestors are
    not tables of the mirror, so that not all are known.
    """

    table: str
    target: str
    position: str
    keys: tuple[str, ...]
    mirror: str
    batch: int
    mode: str
    rules: str | None
    definition: TableSchema
    above: frozenset[TableName] = frozenset()
    unknown: bool = False


def mirrored_copies(spark: SparkSession, control: str) -> tuple[list[MirroredCopy], list[LeftOut]]:
    """Return the copies that can be compared, and the tables that are left out.

    Raises:
        ConfigError: there is no such control table.
    """
    from pyspark.errors import AnalysisException

    try:
        table = spark.table(control)
        rows = table.select(*_COLUMNS, *({_FOREIGN_KEYS} & set(table.columns))).collect()
    except AnalysisException as error:
        raise ConfigError(
            f"{control} is not the control table of a mirror: {first_line(error)}",
            hint="It is beside the mirror's targets, and its name is mirror_control, unless the mirror sets another.",
        ) from error
    parents = {(row["source_database"], row["source_table"]): _parents(row) for row in rows}
    copies, left_out = [], []
    for row in sorted(rows, key=lambda row: (row["source_database"], row["source_table"])):
        name = table_text((row["source_database"], row["source_table"]))
        if live_rows(row["mode"]) is None and row["state"] != _DROPPED:
            left_out.append(LeftOut(name, f"its target has the mode {row['mode']}: it holds changes, not rows"))
        elif row["state"] == _CURRENT:
            try:
                copies.append(_copy(spark, name, row, parents))
            except DataLossError as error:
                left_out.append(LeftOut(name, str(error)))
            except SPARK_ERRORS as error:  # for instance a dropped target: the other tables are compared
                left_out.append(LeftOut(name, f"its target cannot be read: {first_line(error)}"))
        elif row["state"] != _DROPPED:
            left_out.append(LeftOut(name, f"{row['state']}: {row['error'] or 'its snapshot is still running'}"))
    return copies, left_out


def _copy(
    spark: SparkSession, table: str, row: Row, parents: Mapping[TableName, Collection[TableName]]
) -> MirroredCopy:
    name = row["source_database"], row["source_table"]
    definition = tables_from_json(row["definition"])[name]
    above = tables_above(name, parents)
    return MirroredCopy(
        table=table,
        target=f"{row['target']}@v{version_of(spark, row['target'], row['mirror'], row['batch'])}",
        position=row["position"],
        keys=tuple(row["keys"] or ()),
        mirror=row["mirror"],
        batch=row["batch"],
        mode=row["mode"],
        rules=row["rules"],
        definition=definition,
        above=frozenset(above),
        unknown=not above <= parents.keys(),
    )


def _parents(row: Row) -> set[TableName]:
    """Return the tables that a table's foreign keys with CASCADE and SET NULL refer to, as the control row lists
    them.
    """
    keys = row.asDict(recursive=True).get(_FOREIGN_KEYS)
    if keys is not None:
        return {(key["parent_database"], key["parent_table"]) for key in keys}
    old = json.loads(row["definition"] or "{}").get("cascades") or ()
    return {(str(key[1][0]), str(key[1][1])) for key in old}
