"""The mode current: a target holds the rows that the server has now."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_source.queries.latest_changes import reduced
from streaming_source.queries.upserts import merge_statement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.modes.mode import NetChanges
    from streaming_source.mirroring.writers.target_format import TableWriter
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.ruling.target_columns import TargetColumn


class CurrentRows:
    """One MERGE with the last change of each key."""

    append_only = False
    by_key = True
    takes_reduced = True
    appends_values = True
    cascades: frozenset[str] = frozenset({"CASCADE", "SET NULL"})

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the table's own, and no more."""
        return tuple(columns)

    def appended(self, part: NetChanges) -> DataFrame:
        """Return the rows as they are."""
        return part.rows.select("after.*")

    def change(self, part: NetChanges) -> None:
        """Insert, update and delete by the last change of each key."""
        latest = part.rows
        if not part.reduced:
            latest = reduced(part.rows, part.keys, partial=part.partial, domains=part.domains)
        merge = merge_statement(part.target.name, part.keys, part.columns, partial=part.partial)
        part.target.run(merge, part.at, changes=latest)

    def can_append(self, target: TableWriter) -> bool:  # noqa: ARG002  (it is not the target's word)
        """Tell that they are: a target is made new before its rows are read again."""
        return True

    def empty(self, target: TableWriter, statement: StatementRow, at: Commit) -> None:  # noqa: ARG002  (others say when)
        """Delete all rows."""
        target.truncate(at)

    def end(self, target: TableWriter, statement: StatementRow, at: Commit) -> None:
        """Leave the last rows as they are: so onDrop=keep says."""

    def read_again(self, target: TableWriter, statement: StatementRow, at: Commit) -> None:
        """Do nothing: the target is made new."""

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Delete the rows."""
        others = f" WHEN MATCHED THEN UPDATE SET {', '.join(nulls)}" if nulls else ""
        return f"WHEN MATCHED AND gone.deleted THEN DELETE{others}"
