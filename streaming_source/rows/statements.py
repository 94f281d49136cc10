"""Statements in the stream: DDL as rows, and changes that were logged as text.

`DdlRows` takes the groups and bytes of a range and the selection. It returns `ChangeBatch`es without images, for the
statements before a row change and for those after all of them. Their ordinals are negative and end with -1. They sort
before the rows of the same transaction (CREATE TABLE … SELECT), and no pair of GTID and ordinal occurs twice. Named
tables that are not selected count, too, so that ordinals do not depend on the selection.

`DdlRows` examines only groups that the server marks as DDL, or that have nothing but a statement. With
`onStatementDml=row`, it also examines groups that have a change of rows as text, or commit an XA transaction with one.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from replica.errors import SchemaError, StatementDmlError
from replica.protocol.constants import ChecksumAlgorithm, EventType, GtidFlag
from replica.protocol.events.decode import decode
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.events.transaction_events import GtidEvent
from replica.protocol.header import EventHeader, FormatDescriptionEvent, parse_header
from replica.rows.decode.batch import ChangeBatch, Groups, TableName
from replica.rows.scan import records as r
from replica.rows.scan.statements import logged_texts
from replica.rows.types.arrow_arrays import array_of_values
from replica.schema.definition.session import ANY_SERVER, session_of, text_of
from replica.schema.effects.effect import effect_of
from replica.schema.patterns import table_text
from replica.schema.statements.changed_tables import changed_tables
from replica.schema.statements.statements import Verb
from streaming_source.rows.change_rows import OP_DDL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy.typing as npt

    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.header import Event
    from replica.rows.scan.scan import Bytes
    from replica.rows.scan.statements import LoggedText
    from replica.rows.scan.xa import CarriedGroup
    from replica.schema.definition.session import Logged, ServerRules
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.statements.statements import TemporaryTables
    from streaming_source.selection.resolver import SelectedTables
# `named_tables` takes a `QueryEvent` as the server logs it. It returns the names in the statement's order, each once. A
# database has no table name. Names without a database are in the session's database. Only statements on tables,
# indexes, sequences and databases are examined. Other statements have no names here: statements on data, views,
# routines and triggers, and statements that may have a password, such as those on accounts. Temporary tables do not
# count, because no other session sees them. An ALTER that has only started, or was rolled back, has changed nothing. A
# statement on a table or database whose names cannot be read counts as one on any table of the session's database.


_COMMENT: Final = rb"(?>(?:\s|--[^\n]*\n|\#[^\n]*\n|/\*(?!M?!).*?\*/)*)"
_FIRST: Final = re.compile(
    _COMMENT + rb"(?:CREATE|ALTER|DROP|RENAME|REPAIR|TRUNCATE|SET|/\*M?!)", re.IGNORECASE | re.DOTALL
)
"""Beginning of statements to examine. Most statements do not match, so the lexer does not run for them."""
_ON_TABLES: Final = re.compile(
    r"(?:CREATE|ALTER|DROP|RENAME|REPAIR|TRUNCATE)\s(?:\s*(?:OR|REPLACE|ONLINE|IGNORE|LOCAL|UNIQUE|FULLTEXT|SPATIAL)\s)*"
    r"\s*(?:TABLES?|SEQUENCE|INDEX|DATABASE|SCHEMA)\b",
    re.IGNORECASE,
)
"""Beginning of statements that become rows although their names are not clear."""


class Named(NamedTuple):
    """Table, or database with '' as table. `database` is '' if not even the database is clear."""

    database: str
    table: str


def named_tables(query: QueryEvent, server: ServerRules = ANY_SERVER) -> tuple[Named, ...]:
    """Return the names in the statement, in the spelling of the server that wrote it."""
    effect = effect_of(query, server) if _FIRST.match(query.query) else None
    if effect is None:
        return ()
    try:
        return tuple(dict.fromkeys(_names(effect)))
    except SchemaError:
        return (Named(effect.context.database, ""),) if _ON_TABLES.match(effect.sql.lstrip()) else ()


def _names(effect: StatementEffect) -> list[Named]:
    head = effect.head
    if head is None or head.temporary or head.verb is Verb.USE:
        return []
    if not head.tables:
        return [Named(head.database, "")]
    names = [Named(*table) for table in head.tables]
    if head.verb is not Verb.ALTER_TABLE:
        return names
    changed = effect.changed  # EXCHANGE PARTITION … WITH TABLE, which changes rows of both
    exchanged = () if changed is None else changed.tables
    return [*names, *_renamed_tables(effect), *(Named(*table) for table in exchanged)]


def _renamed_tables(effect: StatementEffect) -> list[Named]:
    """Return the other tables of an ALTER TABLE: its new name, and the table with which it exchanges a partition."""
    try:
        change = effect.alteration
    except SchemaError:  # then only the statement's own table is known
        return []
    names = () if change is None else (change.rename, change.to_table, change.from_table)
    return [Named(*table) for table in names if table is not None]


# `changed_selection` returns the selected tables that a statement may have changed, or None. `statement_error` makes
# the error that stops a query before it. These do not count: DDL, including TRUNCATE, if it is delivered as a row
# (`includeDdl`); temporary tables; statements that only delete rows, if the query selects no deletes.


Found = TypeVar("Found")
ANY_TABLE: Final = ("any table",)
"""Tables of a statement whose text does not name them."""
STATEMENT_CHARACTERS: Final = 200
"""Most characters of a statement in a message, enough to identify it. The text of a large LOAD would hide the advice.
"""
CAUSE: Final = "These row changes are not in the binlog (binlog_format STATEMENT or MIXED)."
CAUSE_OF_DDL: Final = "Every binlog_format logs it as a statement; includeDdl=true delivers such statements as rows."
ROW_FORMAT: Final = "Let every session write with binlog_format=ROW, "
REMEDY: Final = (
    "repeat the change in the sink or copy the table there again. Then continue after it with onStatementDml=warn and "
    "the same checkpoint."
)
REMEDY_OF_BATCH: Final = "Read without them with onStatementDml=warn, or copy the table instead."


def changed_selection(
    tables: SelectedTables, statement: Logged, server: ServerRules, temporary: TemporaryTables
) -> tuple[str, ...] | None:
    """Return the selected tables, as database.table, that the statement may have changed without row events."""
    changed = changed_tables(statement, server)
    if changed is None or (changed.removes and "delete" not in tables.operations):
        return None
    if not changed.tables:
        return ANY_TABLE
    delivered: tuple[tuple[str, str], ...] = ()
    if changed.defines and tables.include_ddl and isinstance(statement, QueryEvent):
        delivered = named_tables(statement, server)
    found = [
        table_text(name)
        for name in changed.tables
        if name not in delivered
        and any(tables.selects(*one) for one in tables.spelled(name))
        and not temporary.means(statement, name)
    ]
    return tuple(found) or None


def prepares(begin: Event) -> XaId | None:
    """Return the XA transaction that a group prepares. Its statements count at its commit, like its rows."""
    if isinstance(begin, GtidEvent) and begin.flags2 & GtidFlag.PREPARED_XA:
        return begin.xa
    return None


def completes(begin: Event) -> XaId | None:
    """Return the XA transaction that a group commits or rolls back."""
    if isinstance(begin, GtidEvent) and begin.flags2 & GtidFlag.COMPLETED_XA:
        return begin.xa
    return None


def commits(statement: Logged) -> bool:
    """Return True if a group that completes an XA transaction commits it. The server writes the text itself."""
    return statement.query.startswith(b"XA COMMIT")


def completed(
    texts: Iterable[LoggedText], found: Callable[[LoggedText], Found | None], prepared: dict[XaId, list[Found]]
) -> Iterator[tuple[int, Found]]:
    """Yield the results of `found` with the offset of their group.

    Results of an XA transaction are yielded at its commit.

    Args:
        texts: the statements, in the order of the log.
        found: returns the result for a statement; None if it has none.
        prepared: the results of prepared transactions. The caller keeps this dictionary from call to call.
    """
    for text in texts:
        ended, xid = completes(text.begin), prepares(text.begin)
        if ended is not None:
            kept = prepared.pop(ended, [])
            if commits(text.statement):
                yield from ((text.start, one) for one in kept)
        elif (one := found(text)) is not None:
            if xid is None:
                yield text.start, one
            else:
                prepared.setdefault(xid, []).append(one)


def shown_statement(statement: Logged) -> str:
    """Return the text for a message: one line, shortened, without control characters."""
    text = "".join(c if c.isprintable() else "\ufffd" for c in " ".join(text_of(statement).split()))
    return text if len(text) <= STATEMENT_CHARACTERS else f"{text[: STATEMENT_CHARACTERS - 1]}…"


def statement_error(
    gtid: str, names: tuple[str, ...], statement: Logged, *, where: str = "", batch: bool = False
) -> StatementDmlError:
    """Return the error that ends a query that must not continue without these rows."""
    changed = changed_tables(statement)
    ddl = changed is not None and changed.defines  # no server setting makes row events of DDL
    remedy = REMEDY_OF_BATCH if batch else f"R{REMEDY[1:]}" if ddl else ROW_FORMAT + REMEDY
    return StatementDmlError(
        f"{where}{gtid} may have changed rows of {', '.join(names)} by a statement that was logged without rows: "
        f"`{shown_statement(statement)}`.",
        hint=f"{CAUSE_OF_DDL if ddl else CAUSE} {remedy}",
    )


# `texts_of_changes` takes the bytes of a range and yields the statements that changed rows and were logged as text.
# `changed_names` returns the tables that a statement may have changed, or the database of its session if its text does
# not name them. Statements of an XA transaction count at its commit, like its rows.


QUERY_LENGTH: Final = 13  # of the fixed part of a QUERY, in the binlogs of all servers
_LENGTHS: Final = {
    EventType.QUERY: QUERY_LENGTH,
    EventType.QUERY_COMPRESSED: QUERY_LENGTH,
    EventType.EXECUTE_LOAD_QUERY: 26,
}


@cache
def description_of_texts(*, checksum: bool) -> FormatDescriptionEvent:
    """Return a format description for reading statements of files whose own description is not available."""
    lengths = bytearray(EventType.QUERY_COMPRESSED)
    for kind, length in _LENGTHS.items():
        lengths[kind - 1] = length
    algorithm = ChecksumAlgorithm.CRC32 if checksum else ChecksumAlgorithm.NONE
    return FormatDescriptionEvent(EventHeader(0, 0, 0, 0, 0, 0), "", 0, bytes(lengths), algorithm)


def texts_of_changes(
    data: Bytes, *, checksum: bool, carried: Sequence[CarriedGroup] = ()
) -> Iterator[tuple[int, Logged]]:
    """Yield the statements that changed rows and are not DDL, with the offset of their group.

    The statements of an XA transaction have the offset of the group that commits it. `carried` are groups that were
    prepared before the range.
    """
    parts = [(group.data, group.checksum) for group in carried] + [(data, checksum)]
    texts = (logged_texts(part, description_of_texts(checksum=summed)) for part, summed in parts)
    prepared: dict[XaId, list[Logged]] = {}
    yield from completed(chain.from_iterable(texts), _change, prepared)


def changes_without_rows(data: Bytes, *, checksum: bool) -> bool:
    """Return True if a range has a statement that changed rows without row events, even in a prepared transaction."""
    texts = logged_texts(data, description_of_texts(checksum=checksum))
    return any(_changes_rows(text.statement) for text in texts)


def _change(text: LoggedText) -> Logged | None:
    return text.statement if _changes_rows(text.statement) else None


def _changes_rows(statement: Logged) -> bool:
    changed = changed_tables(statement)
    return changed is not None and not changed.defines


def changed_names(tables: SelectedTables, statement: Logged) -> list[Named]:
    """Return the tables that a statement may have changed, in every possible spelling, or its session's database."""
    changed = changed_tables(statement, tables.server)
    if changed is None or (changed.removes and "delete" not in tables.operations):
        return []
    if not changed.tables:
        return [Named(statement.database, "")]
    spelled = (Named(*name) for written in changed.tables for name in tables.spelled(written))
    return list(dict.fromkeys(spelled))


_STATEMENTS: Final = (EventType.QUERY, EventType.QUERY_COMPRESSED)


class DdlRow(NamedTuple):
    """One row of DDL.

    Attributes:
        group: the number of the statement's group in the range.
        table: '' if the statement names a database, or its table is not clear.
        context: the session context that the statement depends on (`StatementContext.stored`).
    """

    group: int
    ordinal: int
    database: str
    table: str
    sql: str
    context: str


class DdlRows:
    """DDL rows of one range. `find` takes the groups when decoding begins.

    Args:
        carried: groups that were prepared before the range.
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
        """Find the statements in these groups of the range.

        Args:
            groups: the groups.
            wanted: mask of the groups to search, shape (groups,), bool. None searches all.
        """
        self._groups = groups
        self._rows = [row for row in self._found(groups) if wanted is None or wanted[row.group]]

    def counts(self) -> npt.NDArray[np.int64]:
        """Return the number of DDL rows in each group, shape (groups,), int64."""
        assert self._groups is not None, "find() comes first"  # noqa: S101
        return np.bincount([row.group for row in self._rows], minlength=len(self._groups)).astype(np.int64)

    def before(self, changes: ChangeBatch) -> list[tuple[int, ChangeBatch]]:
        """Return the statements before rows of this batch as (index of the following row, statements).

        Each statement is returned once.
        """
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
        """Return the statements of one group.

        `ends`: no row change of the group follows.
        """
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
        standalone = groups.records["ending"] == r.ENDS_STANDALONE
        changes = self._changes(groups) if self._tables.statement_rows else {}
        for number in sorted({*np.flatnonzero(marked | standalone).tolist(), *changes}):
            named: list[tuple[Named, Logged]] = []
            if marked[number] or standalone[number]:
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
        return self._tables.selects_statement(database, table)

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
