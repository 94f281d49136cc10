"""Consistent reads of a mirror's tables at one GTID position, `mirror_tables()`, also during a micro-batch.

In: the session, the mirror, the tables. Out: a DataFrame for each table, of the version of its target that belongs to
the control table. All rows with the state `current` have one position, and one version of the control table is read.
Refused: a table without such a version, because it is suspended or its snapshot is running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ConfigError
from replica.schema.patterns import table_text
from streaming_source.mirroring.control.control_row import CURRENT
from streaming_source.mirroring.control.control_table import control_of
from streaming_source.mirroring.reading.resnapshot import named_table
from streaming_source.mirroring.writers.choose import open_target

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession


class TablesAtPosition(dict[str, "DataFrame"]):
    """DataFrames by their table names on the server; `position`: the GTID position of all of them."""

    def __init__(self, position: str) -> None:
        super().__init__()
        self.position = position


def mirror_tables(
    spark: SparkSession,
    *,
    into: str | None = None,
    control: str | None = None,
    tables: Collection[str] | None = None,
) -> TablesAtPosition:
    """Read the tables of a mirror at one GTID position.

    While the mirror writes a micro-batch, some targets are ahead of others. This function reads each target in the
    version that belongs to the control table. Together these versions are the state of the server between two
    transactions. They stay readable while the mirror goes on, until Delta removes their files (VACUUM).

    Args:
        spark: a session that sees the targets.
        into: the template that the mirror was started with; or
        control: the name of its control table.
        tables: the tables to read, as database.table. Unset: all tables with the state `current`.

    Returns:
        A dict of DataFrames by database.table; its attribute `position` is the GTID position.

    Raises:
        ConfigError: there is no such mirror, or a requested table is not current.
        DataLossError: the log of a target does not reach back to the position any more.
    """
    _, rows = control_of(spark, "mirror_tables", into, control)
    states = {row.name: row.state for row in rows}
    current = {name for name, state in states.items() if state == CURRENT}
    wanted = current if tables is None else set(map(named_table, tables))
    for name in sorted(wanted):
        if states.get(name) != CURRENT:
            told = f"is {states[name]}" if name in states else "is not a table of the mirror"
            raise ConfigError(
                f"{table_text(name)} {told}: it is not at the position of the others.",
                hint=f"Only tables in the state {CURRENT} are: mirror_status shows the states.",
            )
    chosen = [row for row in rows if row.name in wanted]
    found = TablesAtPosition(chosen[0].position if chosen else "")
    for row in chosen:
        found[table_text(row.name)] = open_target(spark, row.target).rows_at(row)
    return found
