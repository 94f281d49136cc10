"""Apply a micro-batch to the target of one table.

In: the table's part of the micro-batch, the statements on it. Out: the table's row of the control table after the
micro-batch. Statements are applied first (`ddl_applier.py`). Snapshot rows are appended, because the target has none of
them. Changes are one MERGE with the last change of each key. A repeated micro-batch leaves the target unchanged,
because each commit has a token.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streaming_source.mirroring.batch.table_rows import typed_columns
from streaming_source.mirroring.statements.ddl_applier import DdlApplier
from streaming_source.mirroring.writers.versions import READS

if TYPE_CHECKING:
    from streaming_source.mirroring.apply.table_batch import TableBatch
    from streaming_source.mirroring.batch.batch_facts import StatementRow, TableChanges
    from streaming_source.mirroring.control.control_row import ControlRow


@dataclass(slots=True)
class TableApplier:
    """Work on one table in one micro-batch."""

    part: TableBatch
    statements: list[StatementRow]
    changes_are_in: bool = False
    """Whether the native writer has merged the changes, so that only new rows are left."""
    reads_are_in: bool = False
    """Whether the native writer has appended the new rows: snapshot rows, or all rows in append_log."""
    failed: Exception | None = None
    """Error of the statements; None if they were applied."""
    _following: DdlApplier | None = None

    @property
    def row(self) -> ControlRow:
        """Current row of the table for the control table."""
        return self.part.row

    @property
    def facts(self) -> TableChanges:
        """Facts of the table in the micro-batch."""
        return self.part.facts

    @property
    def is_over(self) -> bool:
        """Whether all rows are written."""
        if not self.has_rows:
            return True
        if self.part.mode.append_only:
            return self.reads_are_in
        some = self.changes_are_in or self.reads_are_in
        return some and (self.changes_are_in or not self.facts.changes) and (self.reads_are_in or not self.facts.reads)

    def count(self) -> int | None:
        """Return the number of rows in the target before the micro-batch; None if this needs a scan."""
        return self.part.target.count()

    def follow(self) -> None:
        """Apply the statements at the beginning of the micro-batch.

        Raises:
            ConfigError: the target does not belong to this mirror any more.
            SchemaError: the table has to be suspended because of a statement.
        """
        if self.row.live:
            self.part.check_owner()
        self._following = DdlApplier(self.part, self.statements)
        self._following.follow()

    @property
    def has_rows(self) -> bool:
        """Whether there are rows to write, and the table does not wait for a re-snapshot."""
        wanted = self._following is None or self._following.rows_go_in
        return wanted and self.failed is None and self.row.live and self.facts.rows > 0

    def done(self) -> ControlRow:
        """Write the rows into the target, and return the table's row after the micro-batch.

        Raises:
            ConfigError: the target does not belong to this mirror any more.
            SchemaError: the table has to be suspended.
        """
        part = self.part
        if self.failed is not None:
            raise self.failed
        if self.has_rows and (why := part.other_definition()):
            part.wait(why)
        elif not self.is_over:
            part.check_owner()
            part.columns = typed_columns(part.row.table, part.settings.policy)
            self._bring_in()
        if self._following is not None:
            self._following.end()
        part.target.finish(part.facts.rows, part.commit)
        return part.row._replace(
            rows=part.row.rows + part.facts.rows,
            committed_at=part.facts.committed_at or part.row.committed_at,
        )

    def _bring_in(self) -> None:
        part = self.part
        if part.mode.append_only:
            part.append(part.rows())
        elif not part.mode.by_key and part.facts.changes:
            part.merge(part.rows(), READS)
        elif not part.mode.by_key:
            part.append(part.reads())
        elif part.facts.partial or (part.new and part.facts.changes):
            # A new target may have changes in its first micro-batch from before its snapshot.
            part.merge(part.rows())
        else:
            if part.facts.changes and not self.changes_are_in:
                part.merge_changes()
            if part.facts.reads and part.mode.can_append(part.target):
                part.append(part.reads())
            elif part.facts.reads:
                part.merge(part.rows().where("op = 'read'"), READS)
