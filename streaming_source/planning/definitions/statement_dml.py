"""Changes of selected tables that were logged as statements, without rows (the option onStatementDml).

`StatementDml.admit` takes the part of the relay log for a batch. With `fail`, the batch ends right before the first
group with such a statement. If the batch would begin with this group, `admit` raises. With the other values, the
statements are counted for the query's progress. A transaction that was rolled back counts, because the server logs it
only if it changed a non-transactional table. Statements of an XA transaction count at its XA COMMIT, like its rows.

Temporary tables are tracked from batch to batch. After a restart, the relay log is scanned once from its beginning,
when the first statement that uses a temporary table arrives.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.relay_log.location import RelayLocation, relay_numbers
from replica.relay_log.walks.ddl import statements_between, texts_between
from replica.schema.patterns import table_named
from replica.schema.statements.statements import TemporaryTables, uses_temporary
from replica.snapshot.frontier import NOTHING
from streaming_source.rows.statements import (
    ANY_TABLE,
    changed_selection,
    commits,
    completes,
    named_tables,
    prepares,
    shown_statement,
    statement_error,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.errors import StatementDmlError
    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayHead
    from replica.relay_log.log import RelayLog
    from replica.relay_log.walks.ddl import RelayStatement, RelayText
    from replica.snapshot.frontier import Frontier
    from streaming_source.offsets.offset import SourceOffset
    from streaming_source.options.row_options import OnStatementDml
    from streaming_source.ranges.places import OffsetPlace
    from streaming_source.selection.resolver import SelectedTables

_log = logging.getLogger(__name__)

_REPORTED: Final = ("warn", "row")


class _FoundStatement(NamedTuple):
    text: RelayText
    tables: tuple[str, ...]


class StatementDml:
    """Statements of one query. Only one thread calls it.

    Attributes:
        count: the number of statements that were accepted without rows.
    """

    def __init__(self, tables: SelectedTables, mode: OnStatementDml) -> None:
        self.count = 0
        self._tables = tables
        self._mode = mode
        self._temporary: tuple[GtidPosition, TemporaryTables] | None = None

    def admit(self, log: RelayLog, start: SourceOffset, place: OffsetPlace, head: RelayHead) -> RelayHead:
        """Return the end of the batch from `start` to `head`.

        Raises:
            StatementDmlError: the first statement that the query must not pass comes right after `start`.
        """
        first: _FoundStatement | None = None
        count = 0
        for found in self._within(log, start, place, head.location, reached=head.position):
            if self._mode == "fail":
                return self._before(log, start, place, found)
            first, count = first or found, count + 1
        self.count += count
        if first is not None and self._mode in _REPORTED:
            _warn(first, count)
        return head

    def admit_part(self, log: RelayLog, start: SourceOffset, place: OffsetPlace, end: RelayLocation) -> None:
        """Admit some rows of the group that ends at `end`. The group's statements count with the last of these rows."""
        if self._mode == "fail":
            for found in self._within(log, start, place, end):
                self._before(log, start, place, found)

    def admit_all(
        self, log: RelayLog, start: SourceOffset, place: OffsetPlace, end: OffsetPlace, upto: GtidPosition
    ) -> None:
        """Admit the range of a batch read.

        Such a range cannot end early, so a statement that it must not pass is an error.

        Raises:
            StatementDmlError: there is such a statement.
        """
        first: _FoundStatement | None = None
        count = 0
        for found in self._within(log, start, place, end.reached):
            if not end.exact and not _covers(upto, found.text):
                continue
            if self._mode == "fail":
                raise _error(found, batch=True)
            first, count = first or found, count + 1
        if first is not None and self._mode in _REPORTED:
            _warn(first, count)

    def _before(self, log: RelayLog, start: SourceOffset, place: OffsetPlace, found: _FoundStatement) -> RelayHead:
        head = log.at(found.text.location)
        if found.text.location <= place.reached or head.position == start.position:
            raise _error(found)
        return head

    def _within(
        self,
        log: RelayLog,
        start: SourceOffset,
        place: OffsetPlace,
        end: RelayLocation,
        *,
        reached: GtidPosition | None = None,
    ) -> Iterator[_FoundStatement]:
        """Yield the statements after `start` and before `end` that may have changed selected tables.

        `reached`: the position at `end`, where the next batch will start.
        """
        known: TemporaryTables | None = None
        if self._temporary is not None and self._temporary[0] == start.position:
            known = self._temporary[1].copy()
        prepared: dict[XaId, list[_FoundStatement]] = {}
        for text in texts_between(log, place.scan_from, end):
            if known is None and uses_temporary(text.statement):
                known = _temporary_at(log, place.scan_from)
            if known is not None:
                known.follow(text.statement, text.server)
            completed, xid = completes(text.begin), prepares(text.begin)
            if completed is not None:
                earlier = prepared.pop(completed, None)
                found = self._prepared_before(log, place, completed, start.snapshot) if earlier is None else earlier
                found = [
                    one._replace(text=one.text._replace(location=text.location, begin=text.begin)) for one in found
                ]
                found = found if commits(text.statement) else []
            else:
                found = self._changed(text, known, start.snapshot)
                if xid is not None:
                    prepared.setdefault(xid, []).extend(found)
                    continue
            if place.exact or not _covers(start.position, text):
                yield from found
        if reached is not None:
            self._temporary = None if known is None else (reached, known)

    def _changed(
        self, text: RelayText, temporary: TemporaryTables | None, reading: Frontier | None
    ) -> list[_FoundStatement]:
        """Return the statement if it may have changed selected tables of which rows were delivered."""
        known = TemporaryTables() if temporary is None else temporary
        tables = changed_selection(self._tables, text.statement, text.server, known)
        if tables is not None and reading is not None:
            tables = tuple(name for name in tables if _delivered(reading, name))
        return [_FoundStatement(text, tables)] if tables else []

    def _prepared_before(
        self, log: RelayLog, place: OffsetPlace, xid: XaId, reading: Frontier | None
    ) -> list[_FoundStatement]:
        """Return the statements of an XA transaction that was prepared before the batch.

        It is unknown which of their tables are temporary.
        """
        found: list[_FoundStatement] = []
        for group in place.prepared:
            if group.xid == xid:
                end = RelayLocation(group.location.file, group.bytes.end)
                for text in texts_between(log, group.location, end):
                    found += self._changed(text, None, reading)
        return found


def _delivered(reading: Frontier, name: str) -> bool:
    return name in ANY_TABLE or reading.reached(table_named(name)) != NOTHING


def _covers(position: GtidPosition, text: RelayText) -> bool:
    last = position.get(text.gtid.domain_id)
    return last is not None and last.seq_no >= text.gtid.seq_no


def _temporary_at(log: RelayLog, location: RelayLocation) -> TemporaryTables:
    found = TemporaryTables()
    numbers = relay_numbers(log.directory)
    first = RelayLocation(numbers[0], 0) if numbers else location
    if first < location:
        for text in texts_between(log, first, location):
            found.follow(text.statement, text.server)
    return found


def _error(found: _FoundStatement, *, batch: bool = False) -> StatementDmlError:
    return statement_error(str(found.text.gtid), found.tables, found.text.statement, batch=batch)


def _warn(first: _FoundStatement, count: int) -> None:
    _log.warning(
        "%d statement%s of this batch may have changed rows of selected tables; these row changes are not in the "
        "binlog. The first statement is %s, of %s: %s",
        count,
        "" if count == 1 else "s",
        first.text.gtid,
        ", ".join(first.tables),
        shown_statement(first.text.statement),
    )


# `StatementBorders.admit` takes the part of the relay log for a batch. It returns the place right before the first
# statement that defines, empties, moves or removes a selected table, unless only such statements come before it. So a
# batch begins with its statements, if it has any, and its rows follow them.
#
# DML that was logged as a statement ends no batch. It changes no definition, and a server with binlog_format=STATEMENT
# may log thousands of such statements a second.


class StatementBorders:
    """Statement borders of one query. Only one thread calls it.

    Attributes:
        ended: whether the last batch ends at a statement.
    """

    def __init__(self, tables: SelectedTables) -> None:
        self.ended = False
        self._tables = tables

    def admit(self, log: RelayLog, start: RelayLocation, head: RelayHead) -> RelayHead:
        """Return the end of the batch that begins at `start`, not after `head`.

        Raises:
            DataLossError: groups after `start` were purged.
            ProtocolError: the bytes are damaged.
        """
        reached: RelayLocation | None = start
        """End of the statements at the beginning of the batch; None once rows have followed them."""
        last: RelayLocation | None = None
        self.ended = False
        for statement in statements_between(log, start, head.location):
            here = statement.location
            if here == last or not self._is_selected(statement):
                continue
            if reached is None or (here > reached and not log.is_empty(reached, here)):
                self.ended = True
                return log.at(here)
            reached = log.cut(here, head.location, 1).location if statement.rowless else None
            last = here
        return head

    def _is_selected(self, statement: RelayStatement) -> bool:
        """Return True if the statement names, or may name, a selected table."""
        tables = self._tables
        return any(tables.selects_statement(*name) for name in named_tables(statement.query, tables.server))
