"""The statements on one table in a micro-batch, each followed at its place among the rows.

In: the table's part of the batch, its statements in order. Out: a target that has what the server had behind the last
of them, and the table's row of the control table with its definition and state. What comes before a statement goes in
before it. Where an earlier try of the batch left a part of that, the target first goes back to what it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ConfigError, SchemaError
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.mirroring.alterations import (
    ChangedUntold,
    Dropped,
    Emptied,
    Evolved,
    Made,
    NotInRows,
    asked_of,
)
from streaming_source.mirroring.column_defaults import defaults_behind, same_defaults
from streaming_source.mirroring.column_names import composed
from streaming_source.mirroring.control_row import DROPPED, READING, ControlRow
from streaming_source.mirroring.lost_key import lost_key
from streaming_source.mirroring.met_definitions import unreadable_rows
from streaming_source.mirroring.modes.kinds import check_names
from streaming_source.mirroring.reread import RESYNC, waiting
from streaming_source.mirroring.rule_check import checked_rule
from streaming_source.mirroring.table_part import kept_in
from streaming_source.ruling.target_columns import WHOLE
from streaming_source.schema.target_modes import CURRENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from streaming_source.mirroring.alterations import Asked
    from streaming_source.mirroring.batch_facts import StatementRow
    from streaming_source.mirroring.column_defaults import Defaults
    from streaming_source.mirroring.table_part import TablePart

_SHOWN_CHARACTERS = 200


class StatementWork:
    """The statements of one batch on one table, of which there is at least one."""

    def __init__(self, part: TablePart, statements: Sequence[StatementRow]) -> None:
        self._part = part
        self._settings = part.settings
        self._target = part.target
        self._statements = statements
        self._begun_before = False
        """Whether the batch has changes before its first statement: of a table that this one may replace."""

    def follow(self) -> None:
        """Do what each statement asks, with the rows before it.

        Raises:
            SchemaError: the table cannot be kept equal behind a statement.
        """
        part = self._part
        if part.row.live and (fault := unreadable_rows(part.facts)):
            part.wait(fault)
        if not part.row.live:
            for statement in self._statements:
                self._follow(statement)
        elif self._domains > 1:
            self._wait(self._statements[0], "the batch has changes of it in several replication domains, unordered.")
        else:
            self._in_order(gone=part.replayed and not part.new and not self._went_back())

    @property
    def _row(self) -> ControlRow:
        return self._part.row

    @_row.setter
    def _row(self, row: ControlRow) -> None:
        self._part.row = row

    @property
    def _domains(self) -> int:
        return max(self._part.facts.domains, len({statement.domain for statement in self._statements}))

    def _went_back(self) -> bool:
        """Undo what an earlier try of the batch left, a half of the statements it may be; tell whether the target is
        there: the earlier try may have followed a DROP.
        """
        if not self._target.exists():
            return False
        self._target.go_back(self._row, self._part.number)
        return True

    def _in_order(self, *, gone: bool) -> None:
        """Bring in the rows up to each statement, then what it does; `gone`: there is nothing to bring rows into.

        A MERGE costs a commit, also one without rows: a batch of many statements has few rows between two of them. Rows
        that a TRUNCATE behind them takes out at once are not brought in first.
        """
        rows = self._part.rows()
        if self._part.facts.changes:
            rows.persist(kept_in(self._part.spark, self._settings))  # they are asked for once more than there are parts
        try:
            self._parts_in_order(rows, gone=gone)
        finally:
            rows.unpersist()

    def _parts_in_order(self, rows: DataFrame, *, gone: bool) -> None:
        from pyspark.sql import functions as f

        place = f.struct(f.col("transaction.sequence_number"), f.col("transaction.ordinal"))
        change, before = f.col("op") != "read", f.lit(True)
        places = [_place_of(statement) for statement in self._statements]
        filled = self._filled(rows, place, places)
        self._begun_before = 0 in filled
        emptied = gone
        for number, (statement, here) in enumerate(zip(self._statements, places, strict=True)):
            clears = self._row.live and self._clears(statement)
            if number in filled and not clears:
                self._compare(number)
            if number in filled and self._row.live and not gone and not clears:
                self._part.merge(rows.where(change & before & (place < here)))
                emptied = False
            before = place > here
            if not (clears and emptied):
                self._follow(statement)
            emptied = emptied or clears
        if len(places) in filled or self._part.facts.reads:
            self._compare(len(places))
        if self._row.live and not gone and (len(places) in filled or self._part.facts.reads):
            self._part.merge(rows.where(~change | before))

    def _compare(self, number: int) -> None:
        """Ask for the table again if its rows between two statements are not of its definition there: those before
        the statement of a number, or behind all.
        """
        if not self._row.live:
            return
        places = [(one.number, one.ordinal) for one in self._statements]
        after = places[number - 1] if number else None
        before = places[number] if number < len(places) else None
        why = self._part.other_definition(after, before, reads=before is None)
        if why:
            self._part.wait(why)

    def _filled(self, rows: DataFrame, place: Column, places: Sequence[Column]) -> set[int]:
        """Return which parts of the batch have changes: 0 is the one before the first of `places`, 1 the next."""
        from pyspark.sql import functions as f

        if not self._part.facts.changes:
            return set()
        part = f.size(f.filter(f.array(*places), lambda one: one < place))
        return {row[0] for row in rows.where("op <> 'read'").select(part).distinct().collect()}

    def _clears(self, statement: StatementRow) -> bool:
        """Tell whether a statement takes out all rows of the target, and leaves no trace of them."""
        applied = self._row.mode == CURRENT and self._settings.on_truncate == "apply"
        return applied and statement.effect.empties

    def _follow(self, statement: StatementRow) -> None:
        # What stands in the definition already, or is read again behind the statement, asks nothing of the rule.
        known = not self._row.live or self._known(statement)
        rule = WHOLE if known else self._settings.rule_of(self._row.name)
        try:
            asked = asked_of(statement.effect, self._row.table, self._settings.policy, rule, self._row.defaults)
        except ConfigError as error:
            raise self._error(statement, error.message) from None
        if not self._row.live:
            self._come_back(statement, asked)
        elif isinstance(asked, Emptied):
            self._empty(statement)
        elif known:
            self._check_early(statement, asked)
        elif isinstance(asked, Dropped):
            self._drop(statement)
        elif isinstance(asked, Evolved):
            self._evolve(statement, asked)
        elif isinstance(asked, NotInRows):
            self._read_again(statement, asked)
        elif asked.always:
            self._read_again(statement, NotInRows("another table is made in its place.", "onSwap"))

    def _come_back(self, statement: StatementRow, asked: Asked) -> None:
        """Do what a statement asks of a table that is dropped, or waits to be read again."""
        if isinstance(asked, Dropped):
            self._drop(statement)
        elif self._row.state != DROPPED:  # it is read as it is after the statement
            self._keep_names(statement, asked)
        elif isinstance(asked, Made):
            self._wait(statement, "it is there again.")
        elif isinstance(asked, NotInRows) and asked.policy == "onSwap" and not isinstance(asked, ChangedUntold):
            self._read_again(statement, asked)

    def _read_again(self, statement: StatementRow, asked: NotInRows) -> None:
        policies = {"onTruncate": self._settings.on_truncate, "onSwap": self._settings.on_swap}
        if policies.get(asked.policy, self._settings.on_alter) == "stop":
            raise self._error(statement, f"{asked.why} {asked.policy}=stop asks to stop there.")
        self._wait(statement, asked.why)
        self._keep_names(statement, asked)

    def _keep_names(self, statement: StatementRow, asked: Asked) -> None:
        """Note which columns a statement renames, for a target whose rows stay while the table is read again."""
        if not isinstance(asked, Evolved | NotInRows) or asked.definition is None or asked.names is None:
            return
        if self._row.mode == CURRENT or self._known(statement):
            return
        names = asked.names if self._row.names is None else composed(asked.names, self._row.names)
        self._row = self._row.defined(asked.definition, self._defaults_behind(statement)).with_names(names)

    def _wait(self, statement: StatementRow, why: str) -> None:
        """Leave the target as it is until the table is read again."""
        self._row = waiting(
            self._row, self._part.number, f"read again behind {_shown(statement)}: {why}", state=READING
        )

    def _known(self, statement: StatementRow) -> bool:
        """Tell whether the definition was read behind the statement."""
        gtid = Gtid.parse(statement.gtid)
        last = GtidPosition.parse(self._row.defined_at).get(gtid.domain_id)
        return last is not None and last.seq_no >= gtid.seq_no

    def _check_early(self, statement: StatementRow, asked: Asked) -> None:
        """Read the table again where its rows are of another definition than ours: the first come from before that was
        read.
        """
        harmless = isinstance(asked, Evolved) and not asked.actions and asked.definition == self._row.table
        harmless = harmless and same_defaults(self._defaults_behind(statement), self._row.defaults)
        first = statement == self._statements[0] and not self._begun_before
        new = isinstance(asked, Made) and first and not self._row.rows
        came = self._part.new and isinstance(asked, NotInRows)  # under this name, with rows that it had before
        if came or (not (harmless or new) and (self._part.facts.changes or self._row.rows)):
            self._wait(statement, "the table was changed while the mirror began to read it.")

    def _empty(self, statement: StatementRow) -> None:
        if self._settings.on_truncate == "stop":
            raise self._error(statement, "onTruncate=stop asks to stop there.")
        self._part.mode.empty(self._target, statement)

    def _drop(self, statement: StatementRow) -> None:
        self._row = self._row._replace(state=DROPPED, waits_for=None, error=None)
        if self._settings.on_drop == "drop":
            self._target.drop()
        else:
            self._part.mode.end(self._target, statement)

    def _evolve(self, statement: StatementRow, asked: Evolved) -> None:
        if asked.actions and self._settings.on_alter == "stop":
            raise self._error(statement, "onAlter=stop asks to stop there.")
        lost = lost_key(statement.effect, asked.definition, self._row.keys)
        if lost is not None:
            self._wait(statement, lost)
            self._keep_names(statement, asked)
            return
        keeps = self._row.mode != CURRENT or self._settings.rule_of(self._row.name).where is not None
        values = () if self._part.mode.append_only else asked.values
        if values and keeps:
            self._wait(statement, "it gives a new column values in rows that were there.")
            self._keep_names(statement, asked)
            return
        try:
            ruled = checked_rule(self._part.spark, asked.definition, self._row.keys, self._settings)
        except ConfigError as error:
            raise self._error(statement, error.message) from None
        check_names(".".join(self._row.name), self._row.mode, ruled.columns)
        if asked.actions:
            self._target.alter(self._part.mode.columns(ruled.columns), asked.actions)
        if values:
            self._target.fill({name: value.column() for name, value in values})
        self._row = self._row.defined(asked.definition, self._defaults_behind(statement))

    def _defaults_behind(self, statement: StatementRow) -> Defaults:
        return defaults_behind(statement.effect, self._row.defaults)

    def _error(self, statement: StatementRow, why: str) -> SchemaError:
        table = ".".join(self._row.name)
        return SchemaError(
            f"{table} cannot be kept equal behind {_shown(statement)}: {why}", hint=RESYNC.format(table=table)
        )


def _place_of(statement: StatementRow) -> Column:
    from pyspark.sql import functions as f

    return f.struct(
        f.lit(statement.number).cast("bigint").alias("sequence_number"),
        f.lit(statement.ordinal).cast("bigint").alias("ordinal"),
    )


def _shown(statement: StatementRow) -> str:
    sql = " ".join(statement.effect.sql.split())
    return f"{statement.gtid}, {sql if len(sql) <= _SHOWN_CHARACTERS else f'{sql[:_SHOWN_CHARACTERS]}…'}"
