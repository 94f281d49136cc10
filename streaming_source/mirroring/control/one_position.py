"""All tables of a mirror as they are at one GTID position, `mirror_tables()`, also while a batch is written.

In: the session, which mirror, which of its tables. Out: a DataFrame a table, each of one version of its target: the one
that the control table's rows belong to. All rows that are current have one position, and the control table is read by
one version of it. Refused: a table that is asked for and has no such version, because it is set aside or still read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ConfigError
from replica.schema.patterns import table_text
from streaming_source.mirroring.control.control_row import CURRENT
from streaming_source.mirroring.control.control_table import control_of
from streaming_source.mirroring.reading.resync import named_table
from streaming_source.mirroring.writers.choose import open_target

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import DataFrame, SparkSession


class TablesAtPosition(dict[str, "DataFrame"]):
    """The tables by their names on the server. `position`: where all of them hold."""

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
    """Read the tables of a mirror as they all are at one GTID position.

    While the mirror writes a batch, some targets are ahead of the others. Here each is read in the version that belongs
    to the control table: together they are what the server had at one moment, between two transactions. The versions
    stay as they are while the mirror goes on, until Delta removes their files (VACUUM).

    Args:
        spark: a session that sees the targets.
        into: the template that the mirror was started with; or
        control: the name of its control table.
        tables: those to read, as database.table. Unset: all that are current.

    Returns:
        A dict of DataFrames by database.table; `position` of it is the GTID position.

    Raises:
        ConfigError: there is no such mirror, or a table that was asked for is not current.
        DataLossError: a target's log does not reach back to the position any more.
    """
    _, rows = control_of(spark, "mirror_tables", into, control)
    states = {row.name: row.state for row in rows}
    current = {name for name, state in states.items() if state == CURRENT}
    wanted = current if tables is None else set(map(named_table, tables))
    for name in sorted(wanted):
        if states.get(name) != CURRENT:
            told = f"is {states[name]}" if name in states else "is none of the mirror's tables"
            raise ConfigError(
                f"{table_text(name)} {told}: it is not at the position of the others.",
                hint=f"Only tables whose state is {CURRENT} are: mirror_status tells them.",
            )
    chosen = [row for row in rows if row.name in wanted]
    found = TablesAtPosition(chosen[0].position if chosen else "")
    for row in chosen:
        found[table_text(row.name)] = open_target(spark, row.target).rows_at(row)
    return found
