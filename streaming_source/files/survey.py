"""The planner's single pass over all files of a batch read, at load: which ranges have selected rows.

`FileSurvey` takes the files in stream order, and a resolver that knows the selected tables. It makes a `Survey`: the
partitions with selected rows, with the metadata to read each stretch, and the distinct table maps of the selected
tables. From these the caller makes the schema, and refuses before the first task what cannot be decoded. Ranges without
selected rows cost the tasks nothing. The survey tracks from range to range:

* the tables' columns through the DDL in the files, because rows without logged column names have those of the last DDL;
* XA transactions, because the group that an XA COMMIT completes may be in another file.

It does not use the loop of `replica/readers/log/in_files.py`, because tasks open the same files again, on other
machines, with the same `FileAccess`. It decodes no rows and verifies checksums, as tasks do again. It holds one range
in memory, and plain values.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import DataLossError, ProtocolError, SchemaError
from replica.protocol.constants import EventType, GtidFlag
from replica.protocol.events.decode import decode
from replica.protocol.events.statement_events import QueryEvent
from replica.protocol.gtid import Gtid
from replica.protocol.header import parse_header
from replica.protocol.rows.table_map import TableMapEvent, parse_table_map
from replica.readers.files.ranges import relocated
from replica.relay_log.groups.order import out_of_order
from replica.rows.decode.batch import Groups
from replica.rows.scan import records as r
from replica.rows.scan.scan import Scan, scan
from replica.rows.scan.statements import logged_texts
from replica.rows.scan.xa import XaAction, XaGroup, unprepared_error, xa_groups
from replica.schema.definition.session import ServerRules
from replica.schema.patterns import table_text
from replica.schema.statements.statements import TemporaryTables
from streaming_source.files.partition import RANGE_BYTES, FileAccess, FilePartition, PreparedInFile, Stretch
from streaming_source.rows.statements import DdlRows, changed_selection, completed, statement_error
from streaming_source.selection.pushed_filters import extent_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from replica.errors import StatementDmlError
    from replica.protocol.events.transaction_events import XaId
    from replica.readers.files.binlog import FileRange
    from replica.rows.scan.statements import LoggedText
    from replica.rows.tables.file_tables import FileResolver
    from replica.schema.table import TableSchema
    from streaming_source.options.row_options import OnStatementDml
    from streaming_source.selection.pushed_filters import GroupExtent
    from streaming_source.selection.resolver import Catalog, SelectedTables

MAX_KEPT: Final = 4096
"""Most table maps and names to remember. Further tables are read too, but their errors come later."""
_log = logging.getLogger(__name__)

Definition = tuple[TableMapEvent, "TableSchema | None"]
"""A table as its rows describe it, and its definition from DDL or schemaFile."""


class _Known(NamedTuple):
    """Distinct table map.

    Attributes:
        content: distinguishes table maps of the same table.
    """

    table_map: TableMapEvent
    wanted: bool
    content: bytes

    @property
    def name(self) -> tuple[str, str]:
        return self.table_map.database, self.table_map.table


class _PreparedExtent(NamedTuple):
    group: PreparedInFile
    wanted: bool
    catalog: Catalog


@dataclass
class Survey:
    """Outcome of a survey.

    Attributes:
        last: the newest definition of each selected table.
        names: all tables with rows.
    """

    partitions: list[FilePartition] = field(default_factory=list)
    definitions: dict[tuple[bytes, TableSchema | None], Definition] = field(default_factory=dict)
    last: dict[tuple[str, str], Definition] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    unread: dict[tuple[str, str], SchemaError] = field(default_factory=dict)
    """Selected tables with rows whose columns have no names, and the reasons."""
    statement_dml: int = 0
    """Number of statements that were accepted although their row changes may be missing."""


class FileSurvey:
    """Survey over files in stream order.

    Args:
        on_statement_dml: the option onStatementDml.
    """

    def __init__(
        self,
        resolver: FileResolver,
        tables: SelectedTables,
        *,
        skip_unprepared: bool,
        on_statement_dml: OnStatementDml = "fail",
        strict: bool,
    ) -> None:
        self.found = Survey()
        self._order = FileOrder(strict=strict)
        self._on_statement_dml = on_statement_dml
        self._temporary = TemporaryTables()
        self._prepared_dml: dict[XaId, list[StatementDmlError]] = {}
        self._skip_unprepared = skip_unprepared
        self._resolver = resolver
        self._tables = tables
        self._known: dict[bytes, _Known] = {}
        self._schemas: dict[bytes, TableSchema | None] = {}
        self._prepared: dict[XaId, _PreparedExtent] = {}

    def add_file(self, access: FileAccess) -> None:
        """Survey the next file.

        Raises:
            ReplicaError: the file cannot be read, is damaged (without `skip_damaged`), or (without `skip_unprepared`)
                commits an XA transaction whose rows are in none of the files.
        """
        with access.open() as file:
            planned = FileCutter(access, seekable=file.seekable)
            for part in access.ranges(file):
                if not part.whole:  # an error after this place is raised at the next step
                    _log.warning(
                        "%s ends inside a transaction, at offset %d: the transaction is left out",
                        access.path,
                        part.offset,
                    )
                    continue
                try:
                    found = scan(part.data, checksum=part.checksum)
                    self._order.follow(found, str(access.path))
                    self._range(access, part, found, planned)
                except ProtocolError as error:
                    raise relocated(error, access.path, part.offset) from None
            for damage in file.damage:
                _log.warning("%s: bytes %d to %d are left out: %s", access.path, damage.begin, damage.end, damage.error)
        self.found.partitions += planned.partitions()

    def _range(self, access: FileAccess, part: FileRange, found: Scan, planned: FileCutter) -> None:
        self._find_statement_dml(access, part)
        self._follow(part, found)
        known = [self._table(found.table_map_body(slot), mysql=found.is_mysql) for slot in range(len(found.maps))]
        wanted = np.array([table.wanted for table in known], np.bool_)
        used = in_order_of_last_use(found.events["slot"], len(known))
        if len(self.found.names) < MAX_KEPT:
            self.found.names.update(table_text(known[slot].name) for slot in used)
        catalog: dict[tuple[str, str], TableSchema] = {}
        for table in (known[slot] for slot in used if wanted[slot]):
            schema = self._schema(table)
            if schema is not None:
                catalog[table.name] = schema
            definition = table.table_map, schema
            if table.name in self.found.last or len(self.found.last) < MAX_KEPT:
                self.found.last[table.name] = definition
            if len(self.found.definitions) < MAX_KEPT:
                self.found.definitions[table.content, schema] = definition
        carried, names = self._follow_xa(access, part, found, wanted, catalog)
        if carried or any(wanted[slot] for slot in used) or self._has_statements(part, found):
            planned.add(part, {**names, **catalog}, carried, extent_of(Groups(found.groups)))

    def _follow(self, part: FileRange, found: Scan) -> None:
        """Apply the DDL of a range before its rows, because CREATE TABLE … SELECT has both in one group."""
        ddl = found.groups["flags"] & GtidFlag.DDL != 0
        standalone = found.groups["ending"] == r.ENDS_STANDALONE
        groups = Groups(found.groups, found.expansion)  # offsets in the range, also if the scan expanded it
        data = part.data
        for number in np.flatnonzero(ddl | standalone):
            start, end = int(groups.start[number]), int(groups.end[number])
            while start < end:
                header = parse_header(data, start)
                event = data[start : start + header.event_length]
                if header.event_type in (EventType.QUERY, EventType.QUERY_COMPRESSED):
                    query = decode(event, part.description)
                    assert isinstance(query, QueryEvent)  # noqa: S101
                    if self._resolver.apply(query, server=ServerRules(part.description.version_number)):
                        self._schemas.clear()
                start += header.event_length

    def _find_statement_dml(self, access: FileAccess, part: FileRange) -> None:
        """Find changes of selected tables that were logged as statements: their rows are in no file."""
        server = ServerRules(part.description.version_number)

        def found(text: LoggedText) -> StatementDmlError | None:
            self._temporary.follow(text.statement, server)
            names = changed_selection(self._tables, text.statement, server, self._temporary)
            if names is None:
                return None
            gtid = str(getattr(text.begin, "gtid", None) or "a transaction without GTID")
            where = f"{access.path}, offset {part.offset + text.start}: "
            return statement_error(gtid, names, text.statement, where=where, batch=True)

        for _, error in completed(logged_texts(part.data, part.description), found, self._prepared_dml):
            self._handle_statement_dml(error)

    def _handle_statement_dml(self, error: StatementDmlError) -> None:
        """Count a change that was logged as a statement, or raise its error."""
        if self._on_statement_dml == "fail":
            raise error
        if not self.found.statement_dml and self._on_statement_dml in ("warn", "row"):
            _log.warning("%s", error.message)
        self.found.statement_dml += 1

    def _has_statements(self, part: FileRange, found: Scan) -> bool:
        """Return True if a statement of this range becomes a row."""
        if not self._tables.include_ddl:
            return False
        statements = DdlRows(self._tables, part.data, checksum=part.checksum)
        statements.find(Groups(found.groups, found.expansion))
        return bool(statements.counts().any())

    def _table(self, body: memoryview, *, mysql: bool) -> _Known:
        content = bytes(body[8:])
        table = self._known.get(content)
        if table is None:
            table_map = parse_table_map(body, mysql=mysql)
            wanted = self._resolver.wants(table_map.database, table_map.table)
            if len(self._known) >= MAX_KEPT:
                del self._known[next(iter(self._known))]
            table = self._known[content] = _Known(table_map, wanted, content)
        return table

    def _schema(self, table: _Known) -> TableSchema | None:
        """Return the definition of a selected table at this point of the files."""
        if table.content not in self._schemas:
            if len(self._schemas) >= MAX_KEPT:
                self._schemas.clear()
            self._schemas[table.content] = None
            try:
                target = self._resolver.resolve(table.table_map)
            except SchemaError as error:
                if len(self.found.unread) < MAX_KEPT:
                    self.found.unread[table.name] = error
            else:
                self._schemas[table.content] = target.schema if target else None
        return self._schemas[table.content]

    def _follow_xa(
        self, access: FileAccess, part: FileRange, found: Scan, wanted: NDArray[np.bool_], catalog: Catalog
    ) -> tuple[list[PreparedInFile], Catalog]:
        """Return the earlier groups that this range commits, and the definitions for reading their rows."""
        carried: list[PreparedInFile] = []
        names: dict[tuple[str, str], TableSchema] = {}
        for xa in xa_groups(found):
            if xa.action is XaAction.PREPARE:
                start, end = (part.offset + found.origin(offset) for offset in (xa.start, xa.end))
                group = PreparedInFile(access, start, end, part.description)
                has_statements = self._tables.statement_rows and xa.xid in self._prepared_dml
                self._prepared[xa.xid] = _PreparedExtent(group, has_statements or _has_rows(found, xa, wanted), catalog)
                continue
            prepared = self._prepared.pop(xa.xid, None)
            if xa.action is XaAction.ROLLBACK:
                continue
            if prepared is None:
                self._without_rows(access, xa)
            elif prepared.wanted and not (prepared.group.access == access and prepared.group.start >= part.offset):
                carried.append(prepared.group)
                names.update(prepared.catalog)
        return carried, names

    def _without_rows(self, access: FileAccess, xa: XaGroup) -> None:
        error = unprepared_error(xa)
        if not self._skip_unprepared:
            raise DataLossError(
                f"{access.path}: {error.message}",
                hint="Read the file with its XA PREPARE too, or set skipUnpreparedXa=true to continue without these "
                "rows.",
            )
        _log.warning("%s: %s", access.path, error.message)


def in_order_of_last_use(slots: NDArray[np.int64], count: int) -> list[int]:
    """Return the slots of table maps that rows events use, by their last use, the latest at the end."""
    last = np.full(count, -1, np.int64)
    last[slots] = np.arange(len(slots))  # assignment in order: the last one stays
    return [slot for slot in np.argsort(last).tolist() if last[slot] >= 0]


def _has_rows(found: Scan, xa: XaGroup, wanted: NDArray[np.bool_]) -> bool:
    first, last = (int(found.groups[field][xa.number]) for field in ("first", "last"))
    return bool(wanted[found.events["slot"][first:last]].any())


# Partitions from the ranges of a file that have selected rows. A plain file gives partitions of one to two times
# RANGE_BYTES, or of one larger transaction. Any other file gives one. Adjacent ranges with the same definitions become
# one stretch, so that a task decodes them in one call.


class FileCutter:
    """Joiner of the stretches of one file into partitions."""

    def __init__(self, access: FileAccess, *, seekable: bool) -> None:
        self._access = access
        self._seekable = seekable
        self._partitions: list[FilePartition] = []
        self._stretches: list[Stretch] = []
        self._bytes = 0

    def add(self, part: FileRange, catalog: Catalog, carried: Sequence[PreparedInFile], extent: GroupExtent) -> None:
        """Add a range with selected rows.

        If the range continues the last stretch with the same definitions, the stretch is extended.
        """
        stretch = Stretch(part.offset, part.end, part.description, catalog, tuple(carried), extent)
        last = self._stretches[-1] if self._stretches else None
        if self._seekable and last is not None and last.end == stretch.start and last.catalog == stretch.catalog:
            outside = [g for g in carried if not (g.access == self._access and last.start <= g.start < last.end)]
            joined_extent = last.extent and last.extent.joined(extent)
            self._stretches[-1] = replace(
                last, end=stretch.end, carried=(*last.carried, *outside), extent=joined_extent
            )
        else:
            self._stretches.append(stretch)
        self._bytes += part.end - part.offset
        if self._seekable and self._bytes >= RANGE_BYTES:
            self._close()

    def partitions(self) -> list[FilePartition]:
        self._close()
        return self._partitions

    def _close(self) -> None:
        if self._stretches:
            self._partitions.append(FilePartition(self._access, tuple(self._stretches)))
        self._stretches, self._bytes = [], 0


# The order of GTIDs over all files of a read, by mariadbd's rule for the option gtidStrictMode. A group whose sequence
# number is not above the last one of its domain is refused before any row is read. MySQL's files have other GTIDs.


class FileOrder:
    """Last GTID of each domain.

    Args:
        strict: the option gtidStrictMode.
    """

    def __init__(self, *, strict: bool) -> None:
        self._strict = strict
        self._last: dict[int, Gtid] = {}

    def follow(self, found: Scan, path: str) -> None:
        """Check the next range.

        Raises:
            OutOfOrderGtidError: the sequence number of a group goes back.
        """
        if not self._strict or found.is_mysql:
            return
        groups = Groups(found.groups, found.expansion)
        rows = zip(groups.domain.tolist(), groups.server_id.tolist(), groups.seq_no.tolist(), strict=True)
        for domain, server, signed in rows:
            gtid = Gtid(domain, server, signed % (1 << 64))
            last = self._last.get(domain)
            if last is not None and gtid.seq_no <= last.seq_no:
                raise out_of_order(gtid, last, f"in {path}")
            self._last[domain] = gtid
