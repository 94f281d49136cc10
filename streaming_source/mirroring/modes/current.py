"""The mode current: a target holds the current rows of the server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.mirroring.modes.mode import SparkChange
from streaming_source.schema.target_modes import CURRENT
from streaming_source.sinks.latest_changes import reduced
from streaming_source.sinks.upserts import merge_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.modes.mode import EndReason, NetChanges
    from streaming_source.mirroring.writers.target_format import TableWriter
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.transforms.target_columns import TargetColumn


class CurrentRows:
    """Mode that applies the last change of each key, with one MERGE."""

    name = CURRENT
    append_only = False
    by_key = True
    takes_reduced = True
    appends_values = True
    cascades: frozenset[str] = frozenset({"CASCADE", "SET NULL"})

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the table's columns: the mode adds none."""
        return tuple(columns)

    def appended(self, part: NetChanges) -> DataFrame:
        """Return the rows without metadata columns."""
        return part.rows.select("after.*")

    def merge(self, part: NetChanges) -> SparkChange:
        """Insert, update and delete rows by the last change of each key."""
        latest = part.rows
        if not part.reduced:
            latest = reduced(part.rows, part.keys, partial=part.partial, domains=part.domains)
        return SparkChange(latest, merge_statement(part.target.name, part.keys, part.columns, partial=part.partial))

    def can_append(self, target: TableWriter) -> bool:  # noqa: ARG002  (the answer does not depend on the target)
        """Return True: the target is created again before a re-snapshot."""
        return True

    def end_all(self, target: TableWriter, statement: StatementRow, why: EndReason, at: Commit) -> None:  # noqa: ARG002
        """Delete all rows after TRUNCATE. After DROP they stay (onDrop=keep); a re-snapshot has a new target."""
        if why == "truncate":
            target.truncate(at)

    def end_statement(self, target: TableWriter, statement: StatementRow) -> str:
        """Refuse: the mode does not keep ended rows."""
        raise NotImplementedError(target.name, statement)

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Delete the rows."""
        others = f" WHEN MATCHED THEN UPDATE SET {', '.join(nulls)}" if nulls else ""
        return f"WHEN MATCHED AND gone.deleted THEN DELETE{others}"
