"""Application of the statements on one table in a micro-batch, and of DML that has no row events.

`DdlApplier.follow` applies statements before the rows, and `end` applies DML without row events after the rows. The
source ends a micro-batch before a DDL statement, so statements come before the rows of their micro-batch. If an earlier
version planned the micro-batch, or the server has another order, rows may come first. Then the table is re-snapshot.

Each step of a statement is a commit with a token. A repeated micro-batch skips the steps that the target already has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ConfigError, SchemaError
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.mirroring.batch.batch_facts import unreadable_rows
from streaming_source.mirroring.control.control_table import DROPPED, ControlRow
from streaming_source.mirroring.control.states import doubted, dropped
from streaming_source.mirroring.modes.mode import check_names
from streaming_source.mirroring.reading.resnapshot import RESNAPSHOT_HINT
from streaming_source.mirroring.reading.rules import checked_rule
from streaming_source.mirroring.statements.added_values import defaults_after, same_defaults
from streaming_source.mirroring.statements.alter_proof import dropped_key
from streaming_source.mirroring.statements.alterations import (
    Dropped,
    Emptied,
    Evolved,
    Made,
    NotInRows,
    StatementDmlChange,
    changes_rows,
    composed,
    target_effect,
)
from streaming_source.schema.target_modes import CURRENT
from streaming_source.transforms.transformed_images import UNCHANGED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streaming_source.mirroring.apply.table_applier import TableBatch
    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.statements.added_values import Defaults
    from streaming_source.mirroring.statements.alterations import TargetEffect
    from streaming_source.mirroring.writers.target_format import Commit

_SHOWN_CHARACTERS = 200
_UNORDERED = "the batch has changes of the table in several replication domains, which have no common order."
_MIXED = "the batch has changes of the table before the statement, and others after it."


class DdlApplier:
    """Statements on one table in one micro-batch."""

    def __init__(self, part: TableBatch, statements: Sequence[StatementRow]) -> None:
        self._part = part
        self._settings = part.settings
        self._target = part.target
        self._statements = [one for one in statements if not changes_rows(one.effect)]
        self._statement_dml = [one for one in statements if changes_rows(one.effect)]
        self._target_dropped = False
        """Whether an earlier attempt of the micro-batch dropped the target. Then all steps before the DROP are done."""

    @property
    def rows_go_in(self) -> bool:
        """Whether rows are applied if the micro-batch also has a change without row events.

        A re-snapshot of the table follows. Until then, a log gets all rows, because it must not miss one. Another
        target gets rows only if they are applied without looking up a row of the target, which the target may lack.
        """
        mode = self._part.mode
        return not self._statement_dml or mode.append_only or (mode.by_key and not self._part.facts.partial)

    def follow(self) -> None:
        """Apply the statements, before the rows.

        Raises:
            SchemaError: the table has to be suspended because of a statement.
        """
        part = self._part
        if part.row.live and (fault := unreadable_rows(part.facts)):
            part.wait(fault)
        if part.row.live and self._statements:
            if self._domains > 1:
                self._wait(self._statements[0], _UNORDERED)
                return
            if self._mixed():
                self._wait(self._statements[0], _MIXED)
            else:
                self._target_dropped = part.replayed and not part.new and not self._target.exists()
        emptied = False
        for statement in self._statements:
            clears = self._row.live and self._clears(statement)
            if not (clears and emptied):
                self._follow(statement)
            emptied = clears

    def end(self) -> None:
        """Apply DML that has no row events, after the rows.

        Raises:
            SchemaError: the table has to be suspended because of such a change.
        """
        for statement in self._statement_dml:
            self._follow(statement)

    @property
    def _row(self) -> ControlRow:
        return self._part.row

    @_row.setter
    def _row(self, row: ControlRow) -> None:
        self._part.row = row

    @property
    def _domains(self) -> int:
        return max(self._part.facts.domains, len({statement.domain for statement in self._statements}))

    def _mixed(self) -> bool:
        """Return True if the micro-batch has changes before the last statement."""
        last = self._statements[-1]
        place = last.number, last.ordinal
        return any(not run.read and run.first < place for run in self._part.facts.maps)

    def _at(self, statement: StatementRow) -> Commit:
        """Return the token of the commits for a statement."""
        return self._part.commit.of(f"{statement.gtid}:{statement.ordinal}")

    def _clears(self, statement: StatementRow) -> bool:
        """Return True if a statement removes all rows of the target without keeping them as ended rows."""
        applied = self._row.mode == CURRENT and self._settings.on_truncate == "apply"
        return applied and statement.effect.empties

    def _follow(self, statement: StatementRow) -> None:
        # The rule is not checked if the definition already includes the statement, or if the table is re-snapshot after
        # the statement.
        known = not self._row.live or self._known(statement)
        rule = UNCHANGED if known else self._settings.rule_of(self._row.name)
        try:
            effect = target_effect(statement.effect, self._row.table, self._settings.policy, rule, self._row.defaults)
        except ConfigError as error:
            raise self._error(statement, error.message) from None
        if not self._row.live:
            self._follow_inactive(statement, effect)
        elif isinstance(effect, Emptied):
            self._empty(statement)
        elif known:
            self._check_early(statement, effect)
        elif isinstance(effect, Dropped):
            self._drop(statement)
        elif isinstance(effect, Evolved):
            self._evolve(statement, effect)
        elif isinstance(effect, NotInRows):
            self._require_resnapshot(statement, effect)
        elif effect.always:
            self._require_resnapshot(statement, NotInRows("another table is created in its place.", "onSwap"))

    def _follow_inactive(self, statement: StatementRow, effect: TargetEffect) -> None:
        """Apply a statement on a table that is dropped, or waits for a re-snapshot."""
        if isinstance(effect, Dropped):
            self._drop(statement)
        elif self._row.state != DROPPED:  # the re-snapshot reads the state after the statement
            self._keep_names(statement, effect)
        elif isinstance(effect, Made):
            self._wait(statement, "it was created again.")
        elif isinstance(effect, NotInRows) and effect.policy == "onSwap" and not isinstance(effect, StatementDmlChange):
            self._require_resnapshot(statement, effect)

    def _require_resnapshot(self, statement: StatementRow, effect: NotInRows) -> None:
        policies = {"onTruncate": self._settings.on_truncate, "onSwap": self._settings.on_swap}
        if policies.get(effect.policy, self._settings.on_alter) == "stop":
            raise self._error(statement, f"{effect.why} {effect.policy}=stop suspends the table.")
        self._wait(statement, effect.why)
        self._keep_names(statement, effect)

    def _keep_names(self, statement: StatementRow, effect: TargetEffect) -> None:
        """Record renamed columns, because the rows of the target stay during a re-snapshot."""
        if not isinstance(effect, Evolved | NotInRows) or effect.definition is None or effect.names is None:
            return
        if self._row.mode == CURRENT or self._known(statement):
            return
        earlier = self._row.target_names
        names = effect.names if earlier is None else composed(effect.names, earlier)
        self._row = self._row.defined(effect.definition, self._defaults_after(statement))._replace(target_names=names)

    def _wait(self, statement: StatementRow, why: str) -> None:
        """Leave the target unchanged until the table is re-snapshot."""
        self._row = doubted(self._row, self._part.commit.batch, f"re-snapshot after {_shown(statement)}: {why}")

    def _known(self, statement: StatementRow) -> bool:
        """Return True if the definition already includes the statement."""
        gtid = Gtid.parse(statement.gtid)
        last = GtidPosition.parse(self._row.defined_at).get(gtid.domain_id)
        return last is not None and last.seq_no >= gtid.seq_no

    def _check_early(self, statement: StatementRow, effect: TargetEffect) -> None:
        """Let the table wait for a re-snapshot if a statement that the definition includes affects rows or columns.

        The first rows of the table are older than the definition, so they may have another definition.
        """
        harmless = isinstance(effect, Evolved) and not effect.actions and effect.definition == self._row.table
        harmless = harmless and same_defaults(self._defaults_after(statement), self._row.defaults)
        first = self._statements and statement == self._statements[0]
        new = isinstance(effect, Made) and first and not self._row.rows
        replaced = self._part.new and isinstance(effect, NotInRows)  # an exchange of rows or names made this table
        if replaced or (not (harmless or new) and (self._part.facts.changes or self._row.rows)):
            self._wait(statement, "the table was changed while its snapshot began.")

    def _empty(self, statement: StatementRow) -> None:
        if self._settings.on_truncate == "stop":
            raise self._error(statement, "onTruncate=stop suspends the table.")
        at = self._at(statement)
        if not self._target_dropped:
            self._part.mode.end_all(self._target, statement, "truncate", at)

    def _drop(self, statement: StatementRow) -> None:
        self._row = dropped(self._row)
        if self._settings.on_drop == "drop":
            self._target.drop()
        elif not self._target_dropped:
            self._part.mode.end_all(self._target, statement, "drop", self._at(statement))

    def _evolve(self, statement: StatementRow, effect: Evolved) -> None:
        if effect.actions and self._settings.on_alter == "stop":
            raise self._error(statement, "onAlter=stop suspends the table.")
        lost = dropped_key(statement.effect, effect.definition, self._row.keys)
        if lost is not None:
            self._wait(statement, lost)
            self._keep_names(statement, effect)
            return
        keeps = self._row.mode != CURRENT or self._settings.rule_of(self._row.name).where is not None
        values = () if self._part.mode.append_only else effect.values
        if values and keeps:
            self._wait(statement, "it gives a new column values in existing rows.")
            self._keep_names(statement, effect)
            return
        try:
            ruled = checked_rule(self._part.spark, effect.definition, self._row.keys, self._settings)
        except ConfigError as error:
            raise self._error(statement, error.message) from None
        check_names(".".join(self._row.name), self._row.mode, ruled.columns)
        at = self._at(statement)
        if effect.actions and not self._target_dropped:
            self._target.alter(self._part.mode.columns(ruled.columns), at, effect.actions)
        if values and not self._target_dropped:
            self._target.fill(dict(values), at.step("values"))
        self._row = self._row.defined(effect.definition, self._defaults_after(statement))

    def _defaults_after(self, statement: StatementRow) -> Defaults:
        return defaults_after(statement.effect, self._row.defaults)

    def _error(self, statement: StatementRow, why: str) -> SchemaError:
        table = ".".join(self._row.name)
        return SchemaError(
            f"{table} cannot be kept equal after {_shown(statement)}: {why}", hint=RESNAPSHOT_HINT.format(table=table)
        )


def _shown(statement: StatementRow) -> str:
    sql = " ".join(statement.effect.sql.split())
    return f"{statement.gtid}, {sql if len(sql) <= _SHOWN_CHARACTERS else f'{sql[:_SHOWN_CHARACTERS]}…'}"
