"""Committed row changes in the server's own binlog files, read by the plain decoder, as a second source for the judge.

In: the binlog files, which grow, and the tables. Out: the row changes in binlog order with their places, and the number
of changes up to a GTID position. Rows of an XA transaction belong to its XA COMMIT. This module uses nothing that a
query uses: no relay log, no kernel, no offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.errors import TruncatedError
from replica.protocol.events.binlog_file import walk
from replica.protocol.events.decode import decode
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.events.transaction_events import GtidEvent, XaPrepareEvent, XidEvent
from replica.protocol.rows.rows_event import RowsEvent
from replica.protocol.rows.table_map import TableMapEvent
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import KINDS, ValuePolicy
from replica.schema.catalog import columns_query, keys_query, read_catalog
from tests.kit.oracle.rows import read_rows
from tools.proofs.snapshot.source import binlogs
from tools.proofs.snapshot.tables import DATABASE, PLAIN, SEPARATOR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from replica.protocol.events.transaction_events import XaId
    from replica.protocol.header import Event
    from replica.rows.tables.layout import RowLayout
    from tests.fixtures.mariadb import MariaDb
    from tools.proofs.snapshot.tables import Canonical, State, Table


class Change(NamedTuple):
    """A row change: what the row was and became."""

    table: str
    before: State | None
    after: State | None


class Truth:
    """The changes of a server so far, in order; grows when it is asked about what was not there yet."""

    def __init__(self, server: MariaDb, tables: Iterable[Table]) -> None:
        self.changes: list[Change] = []
        self._server = server
        self._tables: Mapping[str, Table] = {table.name: table for table in tables}
        columns, column_arguments = columns_query([(DATABASE, None)])
        keys, key_arguments = keys_query([(DATABASE, None)])
        # UUID and INET6 are BINARY in the binlog.
        self._schemas = read_catalog(server.sql(columns, args=column_arguments), server.sql(keys, args=key_arguments))
        self._ends: dict[tuple[int, int], int] = {}
        """By domain and sequence number of each group: the number of changes up to its end."""
        self._last: dict[int, int] = {}
        self._read: dict[Path, int] = {}
        """Up to where each file was read."""
        self._prepared: dict[XaId | None, list[Change]] = {}
        self._gtid: GtidEvent | None = None
        self._group: list[Change] = []
        self._maps: dict[int, TableMapEvent] = {}
        self._layouts: dict[bytes, RowLayout] = {}

    def up_to(self, position: str) -> int:
        """How many changes lie at or below a GTID position."""
        wanted = [tuple(map(int, gtid.split("-"))) for gtid in position.split(",") if gtid]
        if any((domain, number) not in self._ends for domain, _, number in wanted):
            self._read_on()
        for domain, _, number in wanted:
            assert (domain, number) in self._ends, f"{position} is no position of the server: it is at {self._last}"
        return max((self._ends[domain, number] for domain, _, number in wanted), default=0)

    def key_of(self, table: str, parts: list[bytes]) -> Canonical | None:
        """The key that these image bytes are, one after the other; None as long as the binlog has no such table."""
        layout = next((one for one in self._layouts.values() if one.table == table), None)
        if layout is None:
            return None
        keys = self._tables[table].keys
        columns = {column.name: column for column in layout.columns}
        image = {
            name: KINDS[columns[name].kind].binlog.read(part, columns[name])
            for (name, *_), part in zip(keys, parts, strict=True)
        }
        return SEPARATOR.join(PLAIN[form](image[name]) for name, _, form in keys)

    def _read_on(self) -> None:
        for file in binlogs(self._server):
            if self._read.get(file, 0) < file.stat().st_size:
                self._file(file)

    def _file(self, file: Path) -> None:
        """Read every group behind the place that was reached before."""
        start = self._read.get(file, 0)
        try:
            for found in walk(file.read_bytes()):
                if found.offset >= start:
                    self._event(decode(found.event, found.description))
                    if self._gtid is None:
                        self._read[file] = found.end
        except TruncatedError:  # the server is writing there
            self._gtid = None

    def _event(self, event: Event) -> None:
        if isinstance(event, GtidEvent):
            self._gtid, self._group = event, []
        elif isinstance(event, TableMapEvent):
            self._maps[event.table_id] = event
        elif isinstance(event, RowsEvent) and not event.is_dummy:
            self._group += self._rows(event)
        elif isinstance(event, XidEvent):
            self._ended()
        elif isinstance(event, XaPrepareEvent):
            self._prepared[event.xa], self._group = self._group, []
            self._ended()
        elif isinstance(event, QueryEvent) and not event.query.startswith((b"BEGIN", b"XA START", b"XA END")):
            assert self._gtid is not None, f"{event.query!r} outside of every group"
            if event.query.startswith(b"XA COMMIT"):
                self._group = self._prepared.pop(self._gtid.xa)
            elif event.query.startswith((b"XA ROLLBACK", b"ROLLBACK")):
                self._prepared.pop(self._gtid.xa, None)
                self._group = []
            self._ended()

    def _ended(self) -> None:
        assert self._gtid is not None, "a group without a GTID"
        self.changes += self._group
        domain, _, number = self._gtid.gtid
        assert self._last.get(domain, 0) < number, f"{self._gtid.gtid} follows {self._last}"
        self._last[domain] = number
        self._ends[domain, number] = len(self.changes)
        self._gtid, self._group = None, []

    def _rows(self, event: RowsEvent) -> Iterator[Change]:
        table_map = self._maps[event.table_id]
        if table_map.database != DATABASE:
            return
        layout = self._layouts.get(table_map.content)
        if layout is None:
            schema = self._schemas[DATABASE, table_map.table]
            layout = self._layouts[table_map.content] = compile_layout(table_map, schema, None, ValuePolicy("text"))
        table = self._tables[table_map.table]
        for row in read_rows(event, layout, ValuePolicy("text")):
            before, after = (None if image is None else table.plain(image) for image in (row.before, row.after))
            yield Change(table.name, before, after)
