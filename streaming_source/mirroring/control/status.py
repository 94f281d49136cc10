"""Status of a mirror's tables, `mirror_status()`, and reads at one position, `mirror_tables()`.

Both functions read one version of the control table, so their results belong to one position. They change nothing. They
work while the mirror runs and while it is stopped.
"""

from __future__ import annotations

import datetime as dt
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError
from replica.protocol.plain_text import one_line
from replica.schema.patterns import table_text
from streaming_source.auditing.mirror.records import last_audits
from streaming_source.mirroring.control.control_table import CURRENT, control_of
from streaming_source.mirroring.control.status_table import LastAudit, shown_name, status_table
from streaming_source.mirroring.reading.resnapshot import named_table
from streaming_source.mirroring.writers.choose import control_store, open_target

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from replica.schema.known_tables import TableName

AUDITED: Final = (
    ("audited_at", "when the last audit of the table ended, or failed"),
    ("audited_position", "GTID position at which the audit compared"),
    ("audit", "its result: equal, not equal, or left out; after a repair: repaired, or not repaired"),
)
"""Name and meaning of the columns that the status adds to those of the control table."""


def mirror_status(
    spark: SparkSession,
    *,
    into: str | None = None,
    control: str | None = None,
    icebergCatalog: str | Mapping[str, str] | None = None,  # noqa: N803
) -> DataFrame:
    """Print the state of each table of a mirror, and return the control table with the last audits.

    A notebook shows the result as a table of states, with bars and reasons, if it is the last value of a cell.

    Args:
        spark: a session that sees the control table.
        into: the template that the mirror was started with. Not needed with `control`.
        control: the name of the control table of the mirror.
        icebergCatalog: the catalog of a mirror with `format="iceberg"`, as `mirror` takes it. A process that has called
            `mirror` already knows the catalog.

    Returns:
        A DataFrame with one row for each table: the columns of the control table, then those of its last audit.

    Raises:
        ConfigError: neither `into` nor `control` is given, or there is no such control table.
    """
    from pyspark.sql import functions as f

    name, rows = control_of(spark, "mirror_status", into, control, icebergCatalog)
    audits = last_audits(spark, name)
    last_of = audits_of(spark, name)
    for row in rows:
        error = f": {row.error}" if row.error else ""
        at = f", at {row.position}" if row.position else ""
        lag = "" if row.lag is None else f", {row.lag:.1f} s behind at the last write"
        last = last_of.get(row.name)
        audit = "" if last is None else f", audited {last.at:%Y-%m-%d %H:%M:%S} UTC: {last.result}"
        target = row.target.replace("`", "")
        line = f"{table_text(row.name)} -> {target}: {row.state}{at}, {row.rows} rows in{lag}{audit}{error}"
        print(one_line(line))
    table = control_store(spark, name).rows()
    if audits is None:
        found = table.withColumns(
            {column: f.lit(None).cast("timestamp" if column == "audited_at" else "string") for column, _ in AUDITED}
        )
    else:
        found = table.join(audits, ["source_database", "source_table"], "left").select(
            *(table[column] for column in table.columns), *(column for column, _ in AUDITED)
        )
    return _shown(found, status_table(rows, last_of, dt.datetime.now(dt.UTC), title=shown_name(name)))


def audits_of(spark: SparkSession, control: str) -> dict[TableName, LastAudit]:
    """Return the last audit of each table that has one."""
    audits = last_audits(spark, control)
    if audits is None:
        return {}
    found = audits.selectExpr("source_database", "source_table", "unix_micros(audited_at) AS at", "audit").collect()
    return {
        (row["source_database"], row["source_table"]): LastAudit(
            dt.datetime.fromtimestamp(row["at"] / 1_000_000, dt.UTC), row["audit"]
        )
        for row in found
    }


def _shown(rows: DataFrame, picture: str) -> DataFrame:
    """Return a DataFrame that notebooks show as a picture, and that is the same DataFrame otherwise."""
    kind: Any = type(rows)
    rows.__class__ = _with_picture(kind)
    rows._picture = picture  # noqa: SLF001  (the attribute of the class that was just given)
    return rows


@cache
def _with_picture(kind: type) -> type:
    """Return a class of DataFrames, of classic Spark or of Spark Connect, with a form for notebooks."""
    return type("MirrorStatus", (kind,), {"_repr_html_": lambda self: self._picture, "__module__": __name__})


# `mirror_tables` reads one version of the control table, in which all rows with the state `current` have one position.
# A suspended table, or one whose snapshot is running, has no version at this position and is refused.


class TablesAtPosition(dict[str, "DataFrame"]):
    """DataFrames by their table names on the server.

    Attributes:
        position: the GTID position of all DataFrames.
    """

    def __init__(self, position: str) -> None:
        super().__init__()
        self.position = position


def mirror_tables(
    spark: SparkSession,
    *,
    into: str | None = None,
    control: str | None = None,
    icebergCatalog: str | Mapping[str, str] | None = None,  # noqa: N803
    tables: Collection[str] | None = None,
) -> TablesAtPosition:
    """Read the tables of a mirror at one GTID position.

    While the mirror writes a micro-batch, some targets are ahead of others. This function reads each target in the
    version that belongs to the control table. The versions stay readable until their files are removed (VACUUM).

    Args:
        spark: a session that sees the targets.
        into: the template that the mirror was started with. Not needed with `control`.
        control: the name of the control table of the mirror.
        icebergCatalog: the catalog of a mirror with `format="iceberg"`, as `mirror` takes it. A process that has called
            `mirror` already knows the catalog.
        tables: the tables to read, as database.table. Unset: all tables with the state `current`.

    Returns:
        A dict of DataFrames by database.table; its attribute `position` is the GTID position.

    Raises:
        ConfigError: there is no such mirror, or a requested table is not current.
        DataLossError: the log of a target does not reach back to the position any more.
    """
    _, rows = control_of(spark, "mirror_tables", into, control, icebergCatalog)
    states = {row.name: row.state for row in rows}
    current = {name for name, state in states.items() if state == CURRENT}
    wanted = current if tables is None else set(map(named_table, tables))
    for name in sorted(wanted):
        if states.get(name) != CURRENT:
            finding = f"is {states[name]}" if name in states else "is not a table of the mirror"
            raise ConfigError(
                f"{table_text(name)} {finding}: it is not at the position of the others.",
                hint=f"Only tables in the state {CURRENT} are: mirror_status shows the states.",
            )
    chosen = [row for row in rows if row.name in wanted]
    found = TablesAtPosition(chosen[0].position if chosen else "")
    for row in chosen:
        found[table_text(row.name)] = open_target(spark, row.target).rows_at(row)
    return found
