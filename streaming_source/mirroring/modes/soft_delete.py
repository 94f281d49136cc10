"""The mode soft_delete: a deleted row stays with its last values, and with the time of its deletion.

An insert of the same key restores the row. A row that was inserted and deleted within one micro-batch is in the target
as a deleted row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.modes.mode import SparkChange, own_columns
from streaming_source.schema.target_modes import SOFT_DELETE
from streaming_source.sinks.sql_text import text_value
from streaming_source.sinks.upserts import merge_head, new_value, reduced, sql_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.modes.mode import EndReason, NetChanges
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter
    from streaming_source.transforms.transformed_images import TargetColumn

_DELETED = {"_deleted": "true", "_deleted_at": "change._committed", "_deleted_gtid": "change._gtid"}
_LIVE = {"_deleted": "false", "_deleted_at": "NULL", "_deleted_gtid": "NULL"}


class SoftDelete:
    """Mode that marks rows as deleted, with one MERGE of the last change of each key."""

    name = SOFT_DELETE
    append_only = False
    by_key = True
    needs_latest_only = False
    appends_values = True
    cascades: frozenset[str] = frozenset({"CASCADE", "SET NULL"})

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the table's columns, and those that record whether and when the row was deleted."""
        return (*columns, *own_columns(SOFT_DELETE))

    def appended(self, part: NetChanges) -> DataFrame:
        """Return the rows as rows that are not deleted."""
        return part.rows.selectExpr(
            "after.*",
            "false AS _deleted",
            "CAST(NULL AS TIMESTAMP) AS _deleted_at",
            "CAST(NULL AS STRING) AS _deleted_gtid",
        )

    def merge(self, part: NetChanges) -> SparkChange:
        """Insert and update rows by the last change of each key; mark rows whose last change is a delete."""
        latest = reduced(part.rows, part.keys, partial=part.partial, domains=part.domains, last_values=True)
        return SparkChange(latest, _merge(part))

    def can_append(self, target: TableWriter) -> bool:
        """Return True if no row is marked as deleted: a snapshot row would have to restore it."""
        return target.rows().where("_deleted").isEmpty()

    def end_all(self, target: TableWriter, statement: StatementRow, why: EndReason, at: Commit) -> None:  # noqa: ARG002
        """Mark all rows as deleted, whatever the reason; a re-snapshot restores the rows that it reads."""
        target.end_rows(self, statement, at)

    def end_statement(self, target: TableWriter, statement: StatementRow) -> str:
        """Return the UPDATE that marks all rows as deleted."""
        deleted = f"_deleted = true, _deleted_at = timestamp_micros({statement.committed_us})"
        assigned = f"{deleted}, _deleted_gtid = {text_value(statement.gtid)}"
        return f"UPDATE {target.name} SET {assigned} WHERE NOT _deleted"  # noqa: S608  (names and texts are quoted)

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Return the actions that mark the rows as deleted."""
        values = "target._deleted = true, target._deleted_at = gone.committed, target._deleted_gtid = gone.gtid"
        others = f" WHEN MATCHED AND NOT target._deleted THEN UPDATE SET {', '.join(nulls)}" if nulls else ""
        return f"WHEN MATCHED AND gone.deleted AND NOT target._deleted THEN UPDATE SET {values}{others}"


def _merge(part: NetChanges) -> str:
    values = {sql_name(name): new_value(name, part.keys, partial=part.partial) for name in part.columns}

    def assigned(own: dict[str, str]) -> str:
        return ", ".join(f"target.{name} = {value}" for name, value in {**values, **own}.items())

    deleted = "change._op = 'delete'"
    own = {name: f"CASE WHEN {deleted} THEN {value} ELSE {_LIVE[name]} END" for name, value in _DELETED.items()}
    inserted = {sql_name(name): f"change.{sql_name(name)}" for name in part.columns} | own
    return " ".join(
        (
            merge_head(part.target.name, part.keys),
            f"WHEN MATCHED AND {deleted} THEN UPDATE SET {assigned(_DELETED)}",
            f"WHEN MATCHED THEN UPDATE SET {assigned(_LIVE)}",
            # If a delete has only the key of its row, there are no last values to keep.
            f"WHEN NOT MATCHED AND NOT ({deleted} AND change._absent IS NOT NULL)",
            f"THEN INSERT ({', '.join(inserted)}) VALUES ({', '.join(inserted.values())})",  # noqa: S608
        )
    )
