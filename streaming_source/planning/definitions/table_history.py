"""Definitions of a query's tables at each place of its stream, in the process that plans the query.

`TableHistory` starts from the catalog at load and the position of this catalog, and applies the statements in the relay
log. If rows do not name their columns, offsets carry the state of the tables as text. `admit` returns for the planner
the place at which a batch has to end because of a change of a table, and the text for the offset. `stretches` returns
for the cutter the places at which definitions change, so that each task decodes with the definitions of its rows. Each
batch is scanned once.

Errors: changes that onSchemaChange refuses, and changes of tables whose earlier rows may have been read with later
names.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.handshake.login.login import ask
from replica.handshake.primary.catalog import read_tables
from replica.protocol.gtid import GtidPosition, ambiguous, covers
from replica.relay_log.walks.ddl import statements_between
from replica.schema.patterns import matcher, shadowed, table_text
from streaming_source.attached.folder import attached_directory
from streaming_source.planning.definitions.remembered_selection import tables_then
from streaming_source.ranges.cutting import SchemaStretch
from streaming_source.schema.changes import SchemaChanges, SchemaFollower, TableStep
from streaming_source.schema.origin import tables_and_origin
from streaming_source.schema.table_columns import declared_tables
from streaming_source.schema.table_state import SchemaStore, TableState, state_from_text, state_to_text
from streaming_source.selection.resolver import column_matcher

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from replica.protocol.gtid import BinlogPosition
    from replica.relay_log.location import RelayHead, RelayLocation
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.ddl import RelayStatement
    from replica.schema.effects.history import SchemaHistory
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.ranges.places import OffsetPlace
    from streaming_source.schema.changes import Reread
    from streaming_source.schema.table_state import CatalogOrigin
    from streaming_source.selection.resolver import SelectedTables

    _At = tuple[GtidPosition, BinlogPosition | None]
    """A position, and its place in the primary's binlog if the position may name several places."""
    from collections.abc import Mapping

    from replica.handshake.registration import Steps
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.rows.read_plan import ReadPlan

STATES_KEPT: Final = 16
"""Most states to keep. Spark asks for the last two offsets, and for more only while batches are planned ahead."""
_log = logging.getLogger(__name__)


class _Followed(NamedTuple):
    log: RelayLog
    start: GtidPosition
    begin: RelayLocation
    end: RelayLocation
    steps: list[TableStep]


class TableHistory:
    """History of one query. Only one thread calls it.

    Args:
        table_by_table: whether the query continues if earlier rows of a table may have been read with later names. The
            table is then unknown, and its rows are refused if they do not name their columns.
    """

    def __init__(
        self,
        tables: SelectedTables,
        origin: CatalogOrigin | None,
        changes: SchemaChanges,
        store: SchemaStore,
        *,
        declared: SchemaHistory | None = None,
        reread: Reread | None = None,
        table_by_table: bool = False,
    ) -> None:
        self._table_by_table = table_by_table
        self._tables = tables
        self._origin = origin
        self._changes = changes
        self._store = store
        self._declared = declared
        described = None if origin is None else origin.from_rows
        self._catalog = tables.catalog if described is None else {(described.database, described.table): described}
        self._follower = SchemaFollower(self._catalog, self._selects, reread)
        self._states: OrderedDict[_At, TableState] = OrderedDict()
        self._last: _Followed | None = None
        self._text: tuple[TableState, str] | None = None
        self._new_at: tuple[GtidPosition, frozenset[TableName]] = GtidPosition(), frozenset()
        self._anew: tuple[tuple[GtidPosition, frozenset[TableName]], TableState] | None = None

    def starting(self, offset: SourceOffset) -> SourceOffset:
        """Return the first offset of a query with the state of its tables."""
        state = self._loaded(offset.position)
        if self._declared is not None:
            names = {*self._tables.catalog, *(name for name in self._declared.tables() if name[0])}
            declared = {name: self._declared.table(*name) for name in names if self._kept(name)}
            known = {name: table for name, table in declared.items() if table is not None}
            state = replace(state, changes={**state.changes, **known})
        self._remember(_at(offset), state)
        return replace(offset, schema=self._stored(state))

    def read_anew(self, offset: SourceOffset, names: Collection[TableName]) -> SourceOffset:
        """Return the offset with the server's current definitions of tables whose re-snapshot begins at the offset.

        The earlier definitions may be wrong, for instance after an ALTER that is in no binlog.
        """
        if self._origin is None or self._origin.described or not self._table_by_table:
            return offset
        request = offset.position, frozenset(names)
        if self._anew is None or self._anew[0] != request:
            self._anew = request, self._follower.anew(self._state(offset), names)
            self._last = None
        state = self._anew[1]
        self._remember(_at(offset), state)
        return replace(offset, schema=self._stored(state))

    def admit(
        self, log: RelayLog, start: SourceOffset, place: OffsetPlace, head: RelayHead
    ) -> tuple[RelayHead, str | None]:
        """Return the end of the batch from `start` to `head`, and the text of the tables' state there.

        Raises:
            SchemaError: the first change that the query must not pass comes right after `start`.
        """
        if self._origin is None:
            return head, None
        self._check_for_gap(log, start, place)
        state = self._state(start)
        for step in self._steps(log, start, place, head.location):
            error = self._out_of_order(log, step) or self._refusal(start, state, step)
            if error is not None and self._table_by_table:
                _log.warning("%s", error.message)
            elif error is not None:
                head = log.at(step.location)
                if head.position == start.position and not (start.highest and head.primary != start.primary):
                    raise error
                break
            if step.reason:
                _log.warning("%s: %s", step.gtid, step.reason)
            state = step.state
        state = _arrived(state, head.position)
        several = ambiguous(head.position, log.order().highest)
        self._remember((head.position, head.primary if several else None), state)
        return head, self._stored(state)

    def stretches(
        self, log: RelayLog, start: SourceOffset, first: OffsetPlace, end: RelayLocation
    ) -> list[SchemaStretch]:
        """Return the range from `first` to `end` in stretches, each with one definition of every table."""
        if self._origin is None or self._origin.from_rows is not None:
            return [SchemaStretch(first.scan_from, end)]
        self._check_for_gap(log, start, first)
        state = self._state(start)
        steps = self._steps(log, start, first, end)
        states = [state, *(step.state for step in steps)]
        places = [first.scan_from, *(step.location for step in steps), end]
        hidden: frozenset[TableName] = frozenset()  # tables that are known only from after a later statement
        found: list[SchemaStretch] = []
        for index in range(len(steps), -1, -1):
            masked = replace(states[index], changes={**states[index].changes, **dict.fromkeys(hidden)})
            catalog = masked.only(self._selects)
            if found and found[-1].catalog == catalog:
                found[-1] = found[-1]._replace(begin=places[index])
            else:
                found.append(SchemaStretch(places[index], places[index + 1], catalog))
            if index:
                hidden = (hidden - frozenset(steps[index - 1].tables)) | steps[index - 1].late
        return found[::-1]

    def release(self, offset: SourceOffset) -> None:
        """Drop the states before `offset`, for which Spark will not ask again."""
        self._store.release(offset.schema)

    # -- the state at a place ----------------------------------------------------------------------------------------

    def _state(self, offset: SourceOffset) -> TableState:
        state = self._states.get(_at(offset))
        if state is None:
            state = self._loaded(offset.position)
            if offset.schema is not None:
                state = state_from_text(self._store.read(offset.schema), self._tables.catalog)
                state = self._with_new_tables(state, offset)
            self._remember(_at(offset), state)
        return state

    def _with_new_tables(self, state: TableState, offset: SourceOffset) -> TableState:
        """Return the state with the current definitions of tables that the offset has no definitions of.

        These are tables that the query did not select, or could not see, at the offset.
        """
        then = tables_then(self._tables, offset.selection)
        hidden = matcher(offset.selection.unread if offset.selection else ())
        unknown = (
            (name, table) for name, table in self._tables.catalog.items() if state.changes.get(name, table) is None
        )
        new = {n: table for n, table in unknown if not then.selects(*n) or hidden.fits(n)}
        if not new or self._origin is None:
            return state
        self._new_at = offset.position, frozenset(new)
        read_at = {**state.read_at, **dict.fromkeys(new, self._origin.position)}
        return _arrived(replace(state, changes={**state.changes, **new}, read_at=read_at), offset.position)

    def _loaded(self, position: GtidPosition) -> TableState:
        """Return the state of the catalog at load, which may be ahead of the position."""
        if self._origin is None:
            return TableState()
        return _arrived(TableState(databases=dict(self._origin.databases), as_of=self._origin.position), position)

    def _remember(self, at: _At, state: TableState) -> None:
        self._states[at] = state
        self._states.move_to_end(at)
        while len(self._states) > STATES_KEPT:
            self._states.popitem(last=False)

    def _stored(self, state: TableState) -> str | None:
        if self._origin is None or self._origin.described:
            return None
        if self._text is None or self._text[0] != state:
            self._text = state, self._store.write(state_to_text(state, self._tables.catalog, self._kept))
        return self._text[1]

    def _selects(self, name: TableName) -> bool:
        return self._tables.selects(*name)

    def _kept(self, name: TableName) -> bool:
        """Return True if the history keeps a table: a selected table, or a copy that may replace a selected table."""
        original = shadowed(name[1])
        return self._selects(name) or (original is not None and self._selects((name[0], original)))

    # -- statements --------------------------------------------------------------------------------------------------

    def _steps(self, log: RelayLog, start: SourceOffset, place: OffsetPlace, end: RelayLocation) -> list[TableStep]:
        wanted = _Followed(log, start.position, place.scan_from, end, [])
        if self._last is None or self._last[:4] != wanted[:4]:
            statements = statements_between(log, place.scan_from, end)
            if not place.exact:
                statements = _after(start.position, statements)
            self._last = wanted._replace(steps=self._follower.follow(self._state(start), statements))
        return self._last.steps

    def _check_for_gap(self, log: RelayLog, start: SourceOffset, place: OffsetPlace) -> None:
        """Read the definitions again if the log has a gap after `start`, because statements are missing.

        Such gaps exist only with failOnDataLoss=false.
        """
        if self._origin is None or self._origin.described:
            return
        if self._last is not None and self._last.log is log and place.scan_from in (self._last.begin, self._last.end):
            return
        log_begin = log.at(place.scan_from).position
        if not covers(start.position, log_begin):
            state = self._follower.anew(self._state(start))
            _log.warning(
                "the table definitions are read again: their changes from %s to %s are lost", start.position, log_begin
            )
            self._remember(_at(start), state)

    def _out_of_order(self, log: RelayLog, step: TableStep) -> SchemaError | None:
        """Return an error if sequence numbers went back, so that the catalog may be from before or after the statement.

        This matters only for selected tables whose rows do not name their columns.
        """
        if self._origin is None or self._origin.described or not any(map(self._selects, step.tables)):
            return None
        if not ambiguous((step.gtid,), log.order().highest):
            return None
        if log.first_out_of_order(log.oldest(), step.location) is None:
            return None
        return SchemaError(
            f"{step.gtid} changed {', '.join(map('.'.join, step.tables))}: {step.sql}. Sequence numbers went back "
            "before it, and the rows around it do not name their columns, so their columns are unknown.",
            hint="Set binlog_row_metadata=FULL on the primary, copy the tables again, and start a new checkpoint at "
            "the copy's position.",
        )

    def _refusal(self, start: SourceOffset, state: TableState, step: TableStep) -> SchemaError | None:
        new = self._new_at[1] if start.position == self._new_at[0] else frozenset()  # none of their rows was delivered
        late = [name for name in step.late if self._selects(name) and name not in new]
        if late and self._stored(state) is not None and not start.anchor:
            return SchemaError(
                f"{step.gtid} changed {', '.join(map('.'.join, late))}: {step.sql}. The query was loaded with the "
                "tables as they are after it, and earlier rows do not name their columns. Delivered values may have "
                "column names from after the change.",
                hint="Read the rows again with a new checkpoint, and give the CREATE TABLE statements as they were at "
                "the start in schemaFile. With binlog_row_metadata=FULL on the primary, rows name their columns.",
            )
        for name in step.tables:
            if self._selects(name) and name not in step.late:
                error = self._changes.refusal(step, name, self._table(state, name), self._table(step.state, name))
                if error is not None:
                    return error
        return None

    def _table(self, state: TableState, name: TableName) -> TableSchema | None:
        return state.changes[name] if name in state.changes else self._catalog.get(name)


def _at(offset: SourceOffset) -> _At:
    return offset.position, offset.primary if offset.highest else None


def _arrived(state: TableState, position: GtidPosition) -> TableState:
    """Return the state of a stream at `position`.

    Definitions that were read at or before the position are certain from there on.
    """
    waiting = {name: read for name, read in state.read_at.items() if not covers(position, read)}
    as_of = GtidPosition() if covers(position, state.as_of) else state.as_of
    if as_of == state.as_of and len(waiting) == len(state.read_at):
        return state
    return replace(state, as_of=as_of, read_at=waiting)


def _after(position: GtidPosition, statements: Iterator[RelayStatement]) -> Iterator[RelayStatement]:
    """Yield the statements of groups that are not in the position.

    A replayed range may begin before its batch, so it may have earlier groups.
    """
    for statement in statements:
        last = position.get(statement.gtid.domain_id)
        if last is None or statement.gtid.seq_no > last.seq_no:
            yield statement


# If the options name a server, the history asks it only for tables whose statement the parser did not understand, over
# a separate connection.


def open_history(options: SourceOptions, plan: ReadPlan) -> TableHistory:
    """Return the history of a query in this process. It connects only if a statement needs it."""
    described = None if plan.origin is None else plan.origin.from_rows
    loaded = plan.tables.catalog if described is None else {(described.database, described.table): described}
    shown = column_matcher(options.columns or ())
    changes = SchemaChanges(options.on_schema_change, plan.columns, loaded, options.policy, shown)
    return TableHistory(
        plan.tables,
        plan.origin,
        changes,
        SchemaStore(options.schema_location),
        declared=declared_tables(options.schema_file),
        reread=_rereading(options),
        table_by_table=options.resnapshot_requests is not None,
    )


def _none(_: str) -> bool:
    return False


def _rereading(options: SourceOptions) -> Reread | None:
    if options.replica is None:
        return None
    config, from_primary = options.replica, attached_directory(options) is None
    table_by_table = options.resnapshot_requests is not None

    def reread(names: list[TableName]) -> tuple[Mapping[TableName, TableSchema], GtidPosition]:
        def read() -> Steps[dict[TableName, TableSchema]]:
            found: dict[TableName, TableSchema] = {}
            for name in names:
                try:
                    found |= yield from read_tables([name])
                except SchemaError:
                    continue  # dropped meanwhile: its DROP will follow
            return found

        try:
            steps = partial(tables_and_origin, read, _none, from_primary=from_primary)
            tables, origin = asyncio.run(ask(config, lambda _: steps()))
        except SchemaError as error:  # altered during each attempt to read them
            if not table_by_table:
                raise
            _log.warning("%s: %s", ", ".join(map(table_text, names)), error.message)
            return {}, GtidPosition()
        return tables, origin.position

    return reread
