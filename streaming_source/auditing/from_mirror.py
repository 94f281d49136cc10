"""The tables of a mirror as an audit compares them: each target in the version that its control row speaks of.

In: the session and the name of the control table. Out: a copy a table that is current, with its position and key; the
tables that cannot be compared now, with the reason. The control table is read once, so all of it is of one moment.
Refused: what is no control table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, DataLossError
from streaming_source.auditing.mirror_versions import version_of
from streaming_source.auditing.result import LeftOut
from streaming_source.schema.target_modes import CURRENT, live_rows

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_COLUMNS: Final = (
    *("mirror", "source_database", "source_table", "target", "mode", "state", "keys", "position", "batch", "error"),
    "rules",
)
_CURRENT: Final = "current"
_DROPPED: Final = "dropped"
"""The server has no such table any more: there is nothing to compare its target with."""


class MirroredCopy(NamedTuple):
    """A target as a control row has it."""

    table: str
    target: str
    position: str
    keys: tuple[str, ...]
    mirror: str
    batch: int


def mirrored_copies(spark: SparkSession, control: str) -> tuple[list[MirroredCopy], list[LeftOut]]:
    """Return the copies that can be compared, and the tables that are left out.

    Raises:
        ConfigError: there is no such control table.
    """
    from pyspark.errors import AnalysisException

    try:
        rows = spark.table(control).select(*_COLUMNS).collect()
    except AnalysisException as error:
        raise ConfigError(
            f"{control} is not the control table of a mirror: {str(error).splitlines()[0]}",
            hint="It lies beside the mirror's targets and is called mirror_control, unless the mirror names another.",
        ) from error
    copies, left_out = [], []
    for row in sorted(rows, key=lambda row: (row["source_database"], row["source_table"])):
        table = f"{row['source_database']}.{row['source_table']}"
        if row["mode"] != CURRENT:
            left_out.append(LeftOut(table, _of_mode(row["mode"], row["target"])))
        elif row["state"] == _CURRENT and row["rules"] is not None:
            left_out.append(LeftOut(table, "a rule of the mirror gives its target other columns or rows"))
        elif row["state"] == _CURRENT:
            try:
                told = (row["position"], tuple(row["keys"] or ()), row["mirror"], row["batch"])
                copies.append(MirroredCopy(table, _versioned(spark, row), *told))
            except DataLossError as error:
                left_out.append(LeftOut(table, str(error)))
        elif row["state"] != _DROPPED:
            left_out.append(LeftOut(table, f"{row['state']}: {row['error'] or 'its rows still come'}"))
    return copies, left_out


def _of_mode(mode: str, target: str) -> str:
    """Return why a target of another mode is left out, and how it can be compared."""
    now = live_rows(mode)
    if now is None:
        return f"its target has the mode {mode}: it holds changes, not rows"
    return f"its target has the mode {mode}: compare spark.table({target!r}).where({now!r}), and ignore its own columns"


def _versioned(spark: SparkSession, row: Row) -> str:
    return f"{row['target']}@v{version_of(spark, row['target'], row['mirror'], row['batch'])}"
