"""The work on one table in a micro-batch: what the batch has of it is brought into its target.

In: the table's part of the batch, the statements on it. Out: the table's row of the control table behind the batch.
Statements come first (`ddl_applier.py`). Rows that were read are appended, as none of them can be there; changes are
one MERGE with the last change of each key. The same batch again leaves the target as it is: each commit has a token.
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
    """The work on one table in one batch."""

    part: TableBatch
    statements: list[StatementRow]
    changes_are_in: bool = False
    """Whether the native writer has merged them: only new rows are left."""
    reads_are_in: bool = False
    """Whether the native writer has appended the new rows: those that were read, in append_log all rows."""
    failed: Exception | None = None
    """Why the statements could not be followed."""
    _following: DdlApplier | None = None

    @property
    def row(self) -> ControlRow:
        """What the control table has of the table by now."""
        return self.part.row

    @property
    def facts(self) -> TableChanges:
        """What the batch has of the table."""
        return self.part.facts

    @property
    def is_over(self) -> bool:
        """Whether no rows are left to be written."""
        if not self.has_rows:
            return True
        if self.part.mode.append_only:
            return self.reads_are_in
        some = self.changes_are_in or self.reads_are_in
        return some and (self.changes_are_in or not self.facts.changes) and (self.reads_are_in or not self.facts.reads)

    def count(self) -> int | None:
        """Return how many rows the target has before the batch; None where only reading them would tell."""
        return self.part.target.count()

    def follow(self) -> None:
        """Follow the statements that the batch begins with.

        Raises:
            ConfigError: the target is not this mirror's any more.
            SchemaError: the table cannot be kept equal after a statement; it is suspended.
        """
        if self.row.live:
            self.part.check_owner()
        self._following = DdlApplier(self.part, self.statements)
        self._following.follow()

    @property
    def has_rows(self) -> bool:
        """Whether rows are to be written: the table is not read again, and there are some."""
        wanted = self._following is None or self._following.rows_go_in
        return wanted and self.failed is None and self.row.live and self.facts.rows > 0

    def done(self) -> ControlRow:
        """Bring the rows into the target, and return the table's row after the batch.

        Raises:
            ConfigError: the target is not this mirror's any more.
            SchemaError: the table cannot be kept equal; it is suspended.
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
            # A new target begins with the batch, in which the table may have changes from before it was read.
            part.merge(part.rows())
        else:
            if part.facts.changes and not self.changes_are_in:
                part.merge_changes()
            if part.facts.reads and part.mode.can_append(part.target):
                part.append(part.reads())
            elif part.facts.reads:
                part.merge(part.rows().where("op = 'read'"), READS)
