"""Earlier states of a control table: how lag, rows and states of a mirror changed over time.

Each micro-batch is a version of the control table. `control_history` reads up to MOST_VERSIONS of the versions that the
table still has, evenly spaced. The mirror keeps them for an hour or a little longer, unless the property
`delta.deletedFileRetentionDuration` of the control table says otherwise. A version whose files were removed is left
out. A control table that is no Delta table has only its newest state.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from streaming_source.auditing.mirror.from_mirror import commits_of
from streaming_source.mirroring.control.control_table import DROPPED
from streaming_source.mirroring.writers.choose import format_of
from streaming_source.mirroring.writers.native.data_files import NativeWriteError
from streaming_source.mirroring.writers.native.delta_rows import stored_rows
from streaming_source.sinks.delta import DELTA, known_folder
from streaming_source.sinks.delta_folders import read_delta
from streaming_source.sinks.queries import SPARK_ERRORS

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_table import ControlRow

MOST_VERSIONS: Final = 120
"""Most versions that delta-rs reads. Each takes some 10 ms."""
MOST_BY_SPARK: Final = 20
"""Most versions that Spark reads. Each takes a second."""
_COLUMNS: Final = ("source_database", "source_table", "state", "rows", "lag", "updated_at")
_log = logging.getLogger(__name__)


class Moment(NamedTuple):
    """State of a mirror after one micro-batch.

    Attributes:
        at: when the control table was written.
        lag: the largest lag of a table, in seconds; None if no table has one.
        states: the number of tables in each state, as the control table names it.
        rows: rows read and changes applied since the beginning of each table.
    """

    at: dt.datetime
    lag: float | None
    states: Counter[str]
    rows: dict[TableName, int]


def control_history(spark: SparkSession, control: str, newest: Sequence[ControlRow]) -> list[Moment]:
    """Return the moments that the control table still has, the oldest first.

    Args:
        spark: a session that sees the control table.
        control: its name.
        newest: its rows now.
    """
    found = {} if format_of(control).name != DELTA else _versions(spark, control)
    last = moment([tuple(getattr(row, name) for name in _COLUMNS) for row in newest])
    if last is not None:
        found[last.at] = last
    return [one for _, one in sorted(found.items())]


def moment(rows: Sequence[tuple[Any, ...]]) -> Moment | None:
    """Return the state of a mirror from the rows of one version; None if there are no rows."""
    if not rows:
        return None
    lags = [lag for *_, lag, _ in rows if lag is not None]
    return Moment(
        max(at for *_, at in rows),
        max(lags, default=None),
        Counter(state for _, _, state, *_ in rows if state != DROPPED),
        {(database, table): count for database, table, _, count, *_ in rows},
    )


def rows_a_second(before: Moment, after: Moment) -> float:
    """Return how many rows and changes were applied in a second. A table that begins again counts from zero."""
    done = 0
    for name, count in after.rows.items():
        old = before.rows.get(name, 0)
        done += count - old if count >= old else count
    return done / max(1e-3, (after.at - before.at).total_seconds())


def spaced(versions: Sequence[int], most: int) -> list[int]:
    """Return up to `most` of some versions, evenly spaced, with the newest one."""
    if len(versions) <= most:
        return list(versions)
    step = len(versions) / most
    return [versions[len(versions) - 1 - int(number * step)] for number in range(most)][::-1]


def _versions(spark: SparkSession, control: str) -> dict[dt.datetime, Moment]:
    """Return moments by their times; compactions and other commits without a new state have the same time."""
    found: dict[dt.datetime, Moment] = {}
    folder = known_folder(spark, control)
    try:
        versions = [version for version, _ in commits_of(spark, control)]
    except SPARK_ERRORS as error:
        _log.debug("the log of %s cannot be read: %s", control, error)
        return found
    for version in spaced(versions, MOST_BY_SPARK if folder is None else MOST_VERSIONS):
        try:
            if folder is not None:
                rows = stored_rows(folder, _COLUMNS, version)
            else:
                rows = [tuple(row) for row in read_delta(spark, control, version).select(*_COLUMNS).collect()]
        except (NativeWriteError, *SPARK_ERRORS) as error:  # its files were removed, or it lacks a column
            _log.debug("version %s of %s is left out: %s", version, control, error)
            continue
        one = moment(rows)
        if one is not None:
            found[_utc(one.at)] = one._replace(at=_utc(one.at))
    return found


def _utc(at: dt.datetime) -> dt.datetime:
    import datetime as dt

    return at.astimezone(dt.UTC)
