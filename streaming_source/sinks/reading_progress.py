"""The progress of a query that still reads its tables: JSON for Spark's progress reports, and one line for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from replica.daemon.status.words import size, span
from replica.schema.patterns import table_text

if TYPE_CHECKING:
    from replica.snapshot.progress import SnapshotProgress

NAMED: Final = 5
"""Most tables to name: as many as are read at once by default, and some more."""


def progress_json(progress: SnapshotProgress) -> dict[str, Any]:
    """Return the value for Spark's progress report."""
    value: dict[str, Any] = {
        "tables": progress.tables,
        "tablesDone": progress.tables_done,
        "reading": [table_text(name) for name in progress.current[:NAMED]],
        "rows": progress.rows,
        "bytes": progress.size,
        "rowsPerSecond": round(progress.rows_a_second),
        "estimatedRows": progress.estimated_rows,
    }
    if progress.seconds_left is not None:
        value["secondsLeft"] = round(progress.seconds_left)
    if progress.waits_for:
        value["waitsFor"] = progress.waits_for
    return value


def progress_line(value: dict[str, Any]) -> str:
    """Return the line for people from the JSON."""
    told = f"{value['tablesDone']} of {value['tables']} tables read, {value['rows']} rows ({size(value['bytes'])})"
    parts = [f"{told}, {value['rowsPerSecond']} rows/s"]
    if "secondsLeft" in value:
        parts.append(f"about {span(value['secondsLeft'])} left")
    if value.get("waitsFor"):
        parts.append(f"waiting: {value['waitsFor']}")
    elif value.get("reading"):
        parts.append(f"at {', '.join(value['reading'])}")
    return "; ".join(parts)
