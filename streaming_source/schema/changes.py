"""Decision whether a query may continue after a change of a table: the option onSchemaChange.

`SchemaChanges.refusal` compares a table before and after a statement, and as it was when the query was loaded. It
returns None, or the error with which the query ends right before the change. A change counts only if the query was
loaded with the earlier table. After a restart, the query is loaded with the new columns, so the same statement does not
count. The comparison is by names and Spark types of columns, so a moved column or a longer VARCHAR changes nothing.

If the values of a column no longer fit its type in a typed query, the query ends in every mode.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import ColumnsAddedError, SchemaError, UnsupportedColumnError
from replica.rows.tables.plan import fits
from replica.rows.types.types import output_column
from replica.schema.definition.definition import encoding_of, table_of
from replica.schema.effects.effect import changes_columns, outline_of
from replica.schema.effects.history import SchemaHistory
from replica.schema.known_tables import KnownTables
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from replica.protocol.gtid import Gtid, GtidPosition
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.walks.ddl import RelayStatement
    from replica.rows.types.types import ValuePolicy
    from replica.schema.definition.definition import Table
    from replica.schema.known_tables import TableName
    from replica.schema.patterns import ColumnMatcher
    from replica.schema.table import ColumnSchema, TableSchema
    from streaming_source.options.source_options import OnSchemaChange
    from streaming_source.schema.row_schema import TableColumn
    from streaming_source.schema.table_state import TableState

    Reread = Callable[[list[TableName]], tuple[Mapping[TableName, TableSchema], GtidPosition]]
    """Function that returns the server's current definitions of those tables that exist, and the position at which they
    hold.
    """

_RESTART = "start the query again with the same checkpoint"

_UNDECODABLE = "a type that cannot be decoded"


@dataclass(frozen=True, slots=True)
class SchemaChanges:
    """Rule for one query.

    Args:
        columns: the columns of a typed query; None for VARIANT.
        loaded: the tables as they were when the query was loaded.
        shown: the columns whose changes count; None for all.
    """

    mode: OnSchemaChange
    columns: Sequence[TableColumn] | None
    loaded: Mapping[TableName, TableSchema]
    policy: ValuePolicy
    shown: ColumnMatcher | None = None

    def refusal(
        self, step: TableStep, name: TableName, before: TableSchema | None, after: TableSchema | None
    ) -> SchemaError | None:
        """Return the error with which the query ends before `step`; None if it may continue."""
        loaded = self.loaded.get(name)
        if after is None or loaded is None:
            return None
        known, new = self._types(loaded), self._types(after)
        old = known if before is None else self._types(before)
        where = f"{'.'.join(name)} is changed by the transaction {step.gtid}: {step.sql}"
        for column in self.columns or ():
            key = column_key(column.name)
            kind = new.get(key)
            if kind is not None and kind != old.get(key) == known.get(key) and not fits(kind, column.type):
                return _does_not_fit(where, column, kind)
        if self.mode == "ignore":
            return None
        added = [c.name for c in after.columns if column_key(c.name) in new.keys() - known.keys()]
        other = sorted(
            f"{n} is dropped" if n not in new else f"{n} is {new[n]} instead of {old[n]}"
            for n in old.keys() & known.keys()
            if new.get(n) != old[n] and known[n] == old[n]
        )
        if added and not other and self.mode == "add":
            return ColumnsAddedError(
                f"{where}. New columns: {', '.join(added)}. Everything before is delivered.",
                hint=f"onSchemaChange=add stops the query here: {_RESTART} to get the new columns.",
            )
        if added or other:
            what = ", ".join([*(f"{n} is new" for n in added), *other])
            return SchemaError(
                f"{where}. {what[0].upper()}{what[1:]}. Everything before is delivered.",
                hint=f"onSchemaChange={self.mode} stops the query here. Make the sink ready for the change, then "
                f"{_RESTART}. It continues at this place, with the columns that the table has then.",
            )
        return None

    def _types(self, table: TableSchema) -> dict[str, str]:
        """Return the Spark type of each column by its case-insensitive name."""
        return {
            column_key(column.name): self._type(column)
            for column in table.columns
            if not column.hidden and (self.shown is None or self.shown.fits(column.name))
        }

    def _type(self, column: ColumnSchema) -> str:
        try:
            return output_column(column, self.policy).spark
        except UnsupportedColumnError:
            return _UNDECODABLE


def _does_not_fit(where: str, column: TableColumn, kind: str) -> SchemaError:
    if fits(column.type, kind):
        hint = f"{_RESTART[0].upper()}{_RESTART[1:]}: then the column is {kind}, also for the rows before the change."
    else:
        hint = (
            "Start the query with a new checkpoint after this transaction and the new schema, or leave the column out "
            "(option columns), or read the table as VARIANT (tables)."
        )
    return SchemaError(
        f"{where}. Column {column.name} becomes {kind}, and in the query it is {column.type}: values would be lost. "
        "Everything before is delivered.",
        hint=hint,
    )


# `SchemaFollower.follow` takes the state at the beginning of the stretch and its statements in order. It returns a
# step, with the state from there on, for each statement that changed a known table. The parser of replica.schema
# applies DDL. A table whose statement it does not understand is read from the server's catalog again. If the server
# cannot be asked, the table is unknown from there on, and its rows have to name their columns.
#
# If the catalog was read after a statement, it includes the outcome, so the state does not change. But rows before the
# statement had another definition than the catalog's (`TableStep.late`).


class TableStep(NamedTuple):
    """One change of the state: from the group at `location` on, the tables have `state`.

    Attributes:
        tables: the changed tables.
        reason: the part of the statement that the parser did not understand.
        late: tables whose definition is known only as after this statement.
    """

    location: RelayLocation
    gtid: Gtid
    sql: str
    tables: tuple[TableName, ...]
    state: TableState
    reason: str = ""
    late: frozenset[TableName] = frozenset()


@dataclass(frozen=True, slots=True)
class SchemaFollower:
    """Follower of the statements of the stream.

    Args:
        catalog: the definitions to which states are differences.
        selects: returns True for tables for which the server is asked if a definition is unknown.
    """

    catalog: Mapping[TableName, TableSchema]
    selects: Callable[[TableName], bool]
    reread: Reread | None = None

    def follow(self, state: TableState, statements: Iterable[RelayStatement]) -> list[TableStep]:
        """Return the steps of these statements, in order.

        Raises:
            ProtocolError: the bytes of the statements are damaged.
        """
        steps: list[TableStep] = []
        base: _BaseTables | None = None
        for statement in statements:
            base = base or _BaseTables(self.catalog, state)
            step = self._step(base, statement)
            if step is not None:
                steps.append(step)
                base.state = step.state
        return steps

    def anew(self, state: TableState, names: Iterable[TableName] | None = None) -> TableState:
        """Return the state after unknown changes: the server's current definitions, or unknown.

        Args:
            state: the state before.
            names: the tables. None: all selected tables, and definitions of other tables are dropped.
        """
        chosen = sorted(filter(self.selects, {**self.catalog, **state.changes} if names is None else names))
        changes: dict[TableName, TableSchema | None] = {} if names is None else dict(state.changes)
        read_at: dict[TableName, GtidPosition] = {} if names is None else dict(state.read_at)
        changes.update(dict.fromkeys(chosen))
        if self.reread is not None and chosen:
            found, position = self.reread(chosen)
            changes.update(found)
            read_at.update(dict.fromkeys(found, position))
        return replace(state, changes=changes, read_at=read_at)

    def _step(self, base: _BaseTables, statement: RelayStatement) -> TableStep | None:
        history, state = base.history, base.state
        outline = outline_of(statement.query, statement.server)
        if outline is None:
            return None
        anything = not outline.tables  # the parser did not understand its head
        base.add(filter(self.selects, {**self.catalog, **state.changes}) if anything else outline.tables)
        late = frozenset(
            name
            for name in outline.defined
            if not outline.creates and state.includes(name, statement.gtid) and base.known(name)
        )
        applied = history.apply_event(statement.query, server=statement.server)
        if not applied:
            return None
        changes = dict(state.changes)
        read_at = dict(state.read_at)
        unknown: list[TableName] = []
        for name in applied.tables:
            if name in late:
                base.restore(name)
                continue
            read_at.pop(name, None)
            base.changed(name)
            changes[name] = history.table(*name) if name in history.known else None
            if changes[name] is None and name not in outline.dropped and self.selects(name):
                unknown.append(name)
        known = bool(applied.tables) and late.issuperset(applied.tables)  # read after the statement
        reason = "" if known else applied.reason
        if unknown and self.reread is not None:
            found, position = self.reread(unknown)
            for name, table in found.items():
                changes[name], read_at[name] = table, position
                base.define(name, table)
            reason = "" if found.keys() >= set(unknown) else reason
        databases = {name: e.collation or e.charset or "" for name, e in history.known.databases.items()}
        made = replace(state, changes=changes, read_at=read_at, databases=databases)
        unaffected = frozenset(name for name in late if not changes_columns(statement.query, statement.server))
        tables = tuple(name for name in applied.tables if name not in unaffected)
        return TableStep(
            statement.location, statement.gtid, _shown(statement.query.query), tables, made, reason, late - unaffected
        )


class _BaseTables:
    """Base of a history: the tables of a state, which are added to the history when a statement names them."""

    def __init__(self, catalog: Mapping[TableName, TableSchema], state: TableState) -> None:
        self.state = state
        self._catalog = catalog
        self._changed: set[TableName] = set()
        self.history = SchemaHistory()
        self.history.known = KnownTables(self)
        for name, collation in state.databases.items():
            self.history.known.databases[name] = encoding_of(collation or None)

    def get(self, name: TableName) -> Table | None:
        """Return a table that no statement of this stretch has changed."""
        if name in self._changed:
            return None
        schema = self.state.changes[name] if name in self.state.changes else self._catalog.get(name)
        try:
            return None if schema is None else table_of(schema)
        except SchemaError:
            return None

    def known(self, name: TableName) -> bool:
        return self.history.known.get(name) is not None

    def add(self, names: Iterable[TableName]) -> None:
        """Add these tables to the history as if it had seen their CREATE."""
        for name in names:
            table = self.get(name)
            if table is not None and name not in self.history.known:
                self.history.known.define(name, table)

    def changed(self, name: TableName) -> None:
        self._changed.add(name)

    def restore(self, name: TableName) -> None:
        """Drop the effect of a statement on a table whose known definition already includes it."""
        self.history.known.forget(name)
        self._changed.discard(name)
        self.add([name])

    def define(self, name: TableName, schema: TableSchema) -> None:
        self.history.known.define(name, table_of(schema))


_SHOWN_CHARACTERS = 200


def _shown(query: bytes) -> str:
    text = " ".join(query.decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
