"""DDL of the selected tables as rows: one for each table that a statement names, in order with the row changes.

`DdlRows` takes the groups and bytes of a range and the selection. It returns `ChangeBatch`es without images, for the
statements before a row change and for those after all of them. Their ordinals are negative and end with -1. So they
sort before the rows of the same transaction (CREATE TABLE … SELECT), and no identity is given twice. Tables that are
named and not selected count too, so that ordinals do not depend on the selection.

It examines only groups that the server marks as DDL, or that have nothing but a statement. With `onStatementDml=row`,
it also examines groups that have a change of rows as text, or commit an XA transaction with one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from replica.protocol.constants import EventType, GtidFlag
from replica.protocol.events.decode import decode
from replica.protocol.events.query import QueryEvent
from replica.protocol.header import parse_header
from replica.rows.decode.batch import ChangeBatch, Groups, TableName
from replica.rows.scan import records as r
from replica.rows.types.arrow_arrays import array_of_values
from replica.schema.definition.session import session_of, text_of
from streaming_source.rows.change_rows import OP_DDL
from streaming_source.rows.statements.changes_in_texts import changed_names, description_of_texts, texts_of_changes
from streaming_source.rows.statements.ddl_statements import named_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from replica.rows.scan.xa import CarriedGroup
    from replica.schema.definition.session import Logged
    from streaming_source.rows.statements.ddl_statements import Named
    from streaming_source.selection.resolver import SelectedTables

_STATEMENTS: Final = (EventType.QUERY, EventType.QUERY_COMPRESSED)


class DdlRow(NamedTuple):
    """One row of DDL.

    `group`: its number in the range. `table`: '' if the statement names a database, or its table is not clear.
    `context`: the session context that the statement depends on (`StatementContext.stored`).
    """

    group: int
    ordinal: int
    database: str
    table: str
    sql: str
    context: str


class DdlRows:
    """The DDL rows of one range. `find` takes the groups when decoding begins. `carried`: groups prepared before the
    range.
    """

    def __init__(
        self, tables: SelectedTables, data: memoryview, *, checksum: bool, carried: Sequence[CarriedGroup] = ()
    ) -> None:
        self._tables = tables
        self._data = data
        self._carried = carried
        self._description = description_of_texts(checksum=checksum)
        self._groups: Groups | None = None
        self._rows: list[DdlRow] = []

    def find(self, groups: Groups, wanted: npt.NDArray[np.bool_] | None = None) -> None:
        """Find the statements in these groups of the range. `wanted` is a mask of groups."""
        self._groups = groups
        self._rows = [row for row in self._found(groups) if wanted is None or wanted[row.group]]

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the number of rows per group, int64."""
        assert self._groups is not None, "find() comes first"  # noqa: S101
        return np.bincount([row.group for row in self._rows], minlength=len(self._groups)).astype(np.int64)

    def before(self, changes: ChangeBatch) -> list[tuple[int, ChangeBatch]]:
        """Return the statements before rows of this batch, once: (index of the following row, statements)."""
        found: list[tuple[int, ChangeBatch]] = []
        while self._rows and self._rows[0].group <= int(changes.group[-1]):
            group = self._rows[0].group
            row = int(np.searchsorted(changes.group, group))
            found.append((row, self._batch(self._taken(group), ends=int(changes.group[row]) != group)))
        return found

    def rest(self) -> Iterator[ChangeBatch]:
        """Yield the statements after the last row change of the range."""
        while self._rows:
            yield self._batch(self._taken(self._rows[0].group), ends=True)

    def _taken(self, group: int) -> list[DdlRow]:
        taken = [row for row in self._rows if row.group == group]
        del self._rows[: len(taken)]
        return taken

    def _batch(self, rows: list[DdlRow], *, ends: bool) -> ChangeBatch:
        """Return the statements of one group. `ends`: no row change of it follows."""
        assert self._groups is not None, "find() comes first"  # noqa: S101
        count = len(rows)
        return ChangeBatch(
            rows=count,
            op=np.full(count, OP_DDL, np.int8),
            table=np.arange(count, dtype=np.int32),
            group=np.array([row.group for row in rows], np.int32),
            ordinal=np.array([row.ordinal for row in rows], np.int64),
            last=np.arange(count) == (count - 1 if ends else count),
            tables=[TableName(row.database, row.table) for row in rows],
            groups=self._groups,
            sql=array_of_values([row.sql for row in rows], pa.string()),
            contexts=[row.context for row in rows],
        )

    def _found(self, groups: Groups) -> Iterator[DdlRow]:
        marked = groups.flags & GtidFlag.DDL != 0
        alone = groups.records["ending"] == r.ENDS_STANDALONE
        changes = self._changes(groups) if self._tables.statement_rows else {}
        for number in sorted({*np.flatnonzero(marked | alone).tolist(), *changes}):
            named: list[tuple[Named, Logged]] = []
            if marked[number] or alone[number]:
                named += [
                    (name, query)
                    for query in self._queries(int(groups.start[number]), int(groups.end[number]))
                    for name in named_tables(query, self._tables.server)
                ]
            named += [one for one in changes.get(number, ()) if one not in named]
            for place, ((database, table), query) in enumerate(named):
                if self._selected(database, table):
                    context = session_of(query, self._tables.server).stored()
                    yield DdlRow(number, place - len(named), database, table, text_of(query), context)

    def _changes(self, groups: Groups) -> dict[int, list[tuple[Named, Logged]]]:
        """Return the statements that changed rows without logging them, by the number of their group."""
        found: dict[int, list[tuple[Named, Logged]]] = {}
        for start, statement in texts_of_changes(
            self._data, checksum=bool(self._description.checksum), carried=self._carried
        ):
            for number in np.flatnonzero(groups.start == start).tolist():
                found.setdefault(number, []).extend(
                    (name, statement) for name in changed_names(self._tables, statement)
                )
        return found

    def _selected(self, database: str, table: str) -> bool:
        left = self._tables.filter
        if left is not None and not left.passes_ddl(database or None, table or None):
            return False
        return self._tables.wants_statement(database, table)

    def _queries(self, start: int, end: int) -> Iterator[QueryEvent]:
        """Yield the statements at the beginning of a group, before its rows, if it has any."""
        while start < end:
            header = parse_header(self._data, start)
            if header.event_type == EventType.TABLE_MAP:
                return
            if header.event_type in _STATEMENTS:
                event: Any = decode(self._data[start : start + header.event_length], self._description)
                if isinstance(event, QueryEvent):
                    yield event
            start += header.event_length
