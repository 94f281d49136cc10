"""The states of the tables between the statements of a stretch of the stream.

`SchemaFollower.follow` takes the state at the beginning of the stretch and its statements in order. It returns a step,
with the state from there on, for each statement that changed a known table. The parser of replica.schema applies DDL. A
table whose statement it does not understand is read from the server's catalog again. If the server cannot be asked, the
table is unknown from there on, and its rows have to name their columns.

If the catalog was read after a statement, it includes the outcome, so the state does not change. But rows before the
statement had another definition than the catalog's (`TableStep.late`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import SchemaError
from replica.schema.definition.from_catalog import encoding_of, table_of
from replica.schema.effects.history import SchemaHistory
from replica.schema.effects.outline import changes_columns, outline_of
from replica.schema.known_tables import KnownTables

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from replica.protocol.gtid import Gtid, GtidPosition
    from replica.relay_log.location import RelayLocation
    from replica.relay_log.walks.ddl import RelayStatement
    from replica.schema.definition.definition import Table
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.schema.table_state import TableState

    Reread = Callable[[list[TableName]], tuple[Mapping[TableName, TableSchema], GtidPosition]]
    """Function that returns the server's current definitions of those tables that exist, and the position at which they
    hold.
    """


class TableStep(NamedTuple):
    """One change: from the group at `location` on, `state` holds.

    `tables`: the changed tables. `reason`: the part that the parser did not understand. `late`: tables whose definition
    is known only as after this statement.
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
    """The parser's view of the stream.

    `catalog`: the definitions that states are differences to. `wants`: the tables for which an unknown definition is
    worth a question to the server.
    """

    catalog: Mapping[TableName, TableSchema]
    wants: Callable[[TableName], bool]
    reread: Reread | None = None

    def follow(self, state: TableState, statements: Iterable[RelayStatement]) -> list[TableStep]:
        """Return the steps of these statements, in order.

        Raises:
            ProtocolError: the bytes of the statements are damaged.
        """
        steps: list[TableStep] = []
        below: _Below | None = None
        for statement in statements:
            below = below or _Below(self.catalog, state)
            step = self._step(below, statement)
            if step is not None:
                steps.append(step)
                below.state = step.state
        return steps

    def anew(self, state: TableState, names: Iterable[TableName] | None = None) -> TableState:
        """Return the state after unknown changes: the server's current definitions, or unknown.

        `names`: the tables; None for all selected ones, and then definitions of other tables are dropped.
        """
        asked = sorted(filter(self.wants, {**self.catalog, **state.changes} if names is None else names))
        changes: dict[TableName, TableSchema | None] = {} if names is None else dict(state.changes)
        read_at: dict[TableName, GtidPosition] = {} if names is None else dict(state.read_at)
        changes.update(dict.fromkeys(asked))
        if self.reread is not None and asked:
            found, position = self.reread(asked)
            changes.update(found)
            read_at.update(dict.fromkeys(found, position))
        return replace(state, changes=changes, read_at=read_at)

    def _step(self, below: _Below, statement: RelayStatement) -> TableStep | None:
        history, state = below.history, below.state
        outline = outline_of(statement.query, statement.server)
        if outline is None:
            return None
        anything = not outline.tables  # the parser did not understand its head
        below.bring(filter(self.wants, {**self.catalog, **state.changes}) if anything else outline.tables)
        late = frozenset(
            name
            for name in outline.defined
            if not outline.creates and state.includes(name, statement.gtid) and below.known(name)
        )
        applied = history.apply_event(statement.query, server=statement.server)
        if not applied:
            return None
        changes = dict(state.changes)
        read_at = dict(state.read_at)
        unknown: list[TableName] = []
        for name in applied.tables:
            if name in late:
                below.restore(name)
                continue
            read_at.pop(name, None)
            below.changed(name)
            changes[name] = history.table(*name) if name in history.known else None
            if changes[name] is None and name not in outline.gone and self.wants(name):
                unknown.append(name)
        known = bool(applied.tables) and late.issuperset(applied.tables)  # read after the statement
        reason = "" if known else applied.reason
        if unknown and self.reread is not None:
            found, position = self.reread(unknown)
            for name, table in found.items():
                changes[name], read_at[name] = table, position
                below.define(name, table)
            reason = "" if found.keys() >= set(unknown) else reason
        databases = {name: e.collation or e.charset or "" for name, e in history.known.databases.items()}
        made = replace(state, changes=changes, read_at=read_at, databases=databases)
        gone = frozenset(name for name in late if not changes_columns(statement.query, statement.server))
        tables = tuple(name for name in applied.tables if name not in gone)
        return TableStep(
            statement.location, statement.gtid, _shown(statement.query.query), tables, made, reason, late - gone
        )


class _Below:
    """The base of a history: the tables of a state, which are added to the history when a statement names them."""

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

    def bring(self, names: Iterable[TableName]) -> None:
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
        self.bring([name])

    def define(self, name: TableName, schema: TableSchema) -> None:
        self.history.known.define(name, table_of(schema))


_SHOWN_CHARACTERS = 200


def _shown(query: bytes) -> str:
    text = " ".join(query.decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"
