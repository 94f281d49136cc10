"""Backfill window: all changes of some tables in a relay log range, with which chunks are reconciled.

`BackfillWindow.state_at` returns the row of each changed key at any location of the range, and `ddl` reports statements
that may have changed a table. The window grows with the log and drops everything before a given location. Rows of an XA
transaction count at its XA COMMIT.

A window holds keys and about 60 bytes per row change. Images stay in the mapped log files, which stay on disk while
they are mapped, even after retention removes them. A window above MAX_WINDOW_BYTES is an error.

Changes logged as statements, images without the key and rows that do not fit the table are errors. The error is raised
only to a caller that asks for a state depending on the change. Images without other columns work forward, together with
the chunk (key_states.py), and not backward.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import PrerequisiteError, RelayError, StatementDmlError
from replica.relay_log.location import RelayLocation, relay_number
from replica.relay_log.walks.ddl import MappedRelayRange, texts_between
from replica.relay_log.walks.xa import follow, prepared_at
from replica.rows.decode.open_rows import partial_images
from replica.rows.scan.scan import scan
from replica.rows.scan.xa import CarriedGroup, deliver, unprepared_error
from replica.schema.patterns import table_text
from replica.snapshot.images.kernel_partial_rows import IS_WHOLE, HalfRecord
from replica.snapshot.images.key_states import MissingImages, PartialRowError, latest, states_of
from replica.snapshot.images.row_halves import ImageSegment, RowImageReader, UnreadableChange
from replica.snapshot.reconcile.statements import TableStatements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.native.record import Records
    from replica.relay_log.log import RelayLog, RelayRange
    from replica.relay_log.walks.xa import Prepared, RangeNeeds
    from replica.rows.scan.xa import XaGroup
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from replica.snapshot.images.key_states import KeyStates
    from replica.snapshot.reconcile.statements import TableStatement
    from replica.snapshot.rows.row_block import TableKey

MAX_WINDOW_BYTES: Final = 512 << 20
"""Default memory limit of a window in bytes: six million row changes with a short key. Ten seconds of a busy table need
a tenth of the limit.
"""
RANGE_BYTES: Final = 64 << 20
"""Bytes scanned at once; a larger transaction is scanned on its own."""
_OFFSET_BITS: Final = 40  # allows relay files of a terabyte, and 8 million files


def place_of(location: RelayLocation) -> int:
    """Return a location as one int64 with the same order."""
    return location.file << _OFFSET_BITS | location.offset


def location_at(place: int) -> RelayLocation:
    """Return the location that `place_of` encoded."""
    return RelayLocation(place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1))


class BackfillWindow:
    """Changes of some tables after `start` and up to `end`, which are group ends. Not thread-safe."""

    def __init__(
        self,
        log: RelayLog,
        start: RelayLocation,
        tables: Mapping[TableName, TableKey],
        schemas: Mapping[TableName, TableSchema],
        *,
        defined: Mapping[TableName, TableSchema] | None = None,
        max_bytes: int = MAX_WINDOW_BYTES,
        statement_dml_defines: bool = False,
    ) -> None:
        """Create an empty window at `start`.

        Args:
            log: Relay log.
            start: Group end at which the window starts.
            tables: Key of each table.
            schemas: Columns that are read of each table.
            defined: Tables with all columns, if `schemas` lack some; images are then written without those columns.
            max_bytes: Maximum memory of the window.
            statement_dml_defines: Treat changes without row events as DDL.

        Raises:
            DataLossError: The log does not contain `start` any more.
        """
        self.start = self.end = start
        self._log = log
        self._keys = dict(tables)
        self._computing = {
            name
            for name in tables
            if schemas[name].versioned or any(one.computed for one in (defined or schemas)[name].columns)
        }
        self._reader = RowImageReader(tables, schemas, defined or schemas)
        self._max_bytes = max_bytes
        self._statement_dml_defines = statement_dml_defines
        self._segments: dict[TableName, list[ImageSegment]] = {name: [] for name in tables}
        self._unreadable: dict[TableName, list[UnreadableChange]] = {name: [] for name in tables}
        self._statements: list[TableStatement] = []
        self._follower = TableStatements(lambda: texts_between(log, log.oldest(), start))
        self._prepared: Prepared = prepared_at(log, start)

    @classmethod
    def read(
        cls,
        log: RelayLog,
        start: RelayLocation,
        end: RelayLocation,
        tables: Mapping[TableName, TableKey],
        schemas: Mapping[TableName, TableSchema],
        *,
        defined: Mapping[TableName, TableSchema] | None = None,
        settled: RelayLocation | None = None,
        statement_dml_defines: bool = False,
    ) -> BackfillWindow:
        """Create a window and extend it to `end`.

        The arguments are those of the constructor and of `extend`, which also document the errors.
        """
        window = cls(log, start, tables, schemas, defined=defined, statement_dml_defines=statement_dml_defines)
        window.extend(end, settled=settled)
        return window

    @property
    def size(self) -> int:
        """Bytes of memory that the changes use."""
        return sum(segment.size for segments in self._segments.values() for segment in segments)

    def extend(self, end: RelayLocation, *, settled: RelayLocation | None = None) -> None:
        """Extend the window to `end`, a group end of the log, unless the window already reaches `end`.

        No caller asks for a state before `settled`. A window that is half full therefore keeps one change per key up to
        `settled`.

        Raises:
            DataLossError: Groups of the range were purged.
            ProtocolError: The log is damaged.
            RelayError: The window would exceed its memory limit.
        """
        for part in self._log.ranges(self.end, end, RANGE_BYTES):
            number = relay_number(Path(part.path))
            begin, reached = RelayLocation(number, part.start), RelayLocation(number, part.end)
            (needs,), prepared = follow(self._log, [(begin, reached)], self._prepared)
            self._take_rows(part, number, needs)
            self._take_statements(begin, reached, needs)
            self.end, self._prepared = reached, prepared
            if settled is not None and self.size > self._max_bytes // 2:
                self._settle(place_of(settled))
            if self.size > self._max_bytes:
                raise RelayError(
                    f"the changes between the snapshot of {_names(self._keys)} and the stream take more than "
                    f"{self._max_bytes} bytes of memory.",
                    hint="Let the query take larger batches, so that snapshot rows are delivered sooner, or "
                    "read the tables while fewer changes are written.",
                )
        self.end = max(self.end, end)

    def trim(self, start: RelayLocation) -> None:
        """Drop the changes before `start`, except those in a segment that also has later changes."""
        if start <= self.start:
            return
        self.start, place = start, place_of(start)
        for name in self._keys:
            self._segments[name] = [one for one in self._segments[name] if one.last > place]
            self._unreadable[name] = [one for one in self._unreadable[name] if one.last > place]
        self._statements = [one for one in self._statements if one.location >= start]

    def ddl(self, table: TableName, start: RelayLocation, end: RelayLocation) -> bool:
        """Return True if a statement in the groups [start, end) may have changed the table's definition, or all of its
        rows.
        """
        self.extend(end)
        return any(
            statement.defines and start <= statement.location < end and statement.concerns(table)
            for statement in self._statements
        )

    def lacks_columns(self, table: TableName, start: RelayLocation, end: RelayLocation) -> bool:
        """Return True if images of changes after `start` and up to `end` lack columns."""
        self.extend(end)
        after, upto = place_of(start), place_of(end)
        return any(
            ((half["place"] > after) & (half["place"] <= upto) & (half["flags"] & IS_WHOLE == 0)).any()
            for half in (segment.halves for segment in self._segments[table])
        )

    @property
    def table_maps(self) -> Sequence[bytes]:
        """Bodies of the table maps, indexed by `slot` of the halves."""
        return self._reader.table_maps

    def changes(self, table: TableName, start: RelayLocation, upto: RelayLocation) -> Records:
        """Return the halves of all changes after `start` and up to `upto`, in order; the window owns their images.

        Raises:
            DataLossError, SchemaError, StatementDmlError: As in `state_at`.
            ValueError: The window begins after `start`.
        """
        self.extend(upto)
        after, last = place_of(start), place_of(upto)
        halves = [segment.halves for segment in self._segments_between(table, start, upto)]
        found: Records = np.concatenate([np.empty(0, HalfRecord.dtype), *halves])
        return found[(found["place"] > after) & (found["place"] <= last)]

    def state_at(
        self, table: TableName, start: RelayLocation, upto: RelayLocation, until: RelayLocation | None = None
    ) -> KeyStates:
        """Return every key that changes after `start` and up to `until`, with its row at `upto`.

        If `upto` is before `start`, changes after `upto` count.

        Args:
            table: Table of the window.
            start: Location after which changes count.
            upto: Location at which the rows hold.
            until: Location up to which changes count; None for the window's end.

        Raises:
            DataLossError: An XA COMMIT refers to a transaction whose rows are not in the log.
            PartialRowError: Row images lack needed columns.
            PrerequisiteError: Row images do not contain the row's key (binlog_row_image).
            SchemaError: Row changes do not fit the known table.
            StatementDmlError: A statement logged without rows changed rows of the table.
            ValueError: The window begins after `start`.
        """
        self.extend(upto)
        start = min(start, upto)
        end = max(upto, self.end if until is None else until)
        segments = self._segments_between(table, start, end)
        table_maps, ordered = self._reader.table_maps, self._keys[table].ordered
        last = place_of(end)
        states = states_of(segments, table_maps, place_of(start), place_of(upto), last, ordered=ordered)
        if isinstance(states, MissingImages):
            raise self.missing_images_error(table, states.place) if states.key else PartialRowError(states.place)
        if states.chains is not None and table in self._computing:
            # Except under FULL, images omit generated columns even if their values change (measured on 11.8).
            raise PartialRowError(states.chains.last)
        return states

    def _segments_between(self, table: TableName, start: RelayLocation, end: RelayLocation) -> list[ImageSegment]:
        """Return the segments with changes after `start`; raise an error if a change up to `end` is unreadable.

        The window may reach further for other tables. After `end`, the table may have been created again with another
        key.
        """
        if start < self.start and self._log.ranges(start, self.start, RANGE_BYTES):
            raise ValueError(f"the window begins at {self.start}, after {start}")
        for statement in self._statements:
            if not statement.defines and start <= statement.location < end and statement.concerns(table):
                raise _without_rows(statement, table)
        after, last = place_of(start), place_of(end)
        for change in self._unreadable[table]:
            if change.between(after, last):
                raise type(change.error)(change.error.message, hint=change.error.hint)
        return [one for one in self._segments[table] if one.last > after]

    def _take_statements(self, begin: RelayLocation, end: RelayLocation, needs: RangeNeeds) -> None:
        for group in needs.carried:
            if group.location < self.start:
                limit = RelayLocation(group.location.file, group.bytes.end)
                self._follower.prepared_before(group.xid, texts_between(self._log, group.location, limit))
        for statement in self._follower.follow(texts_between(self._log, begin, end)):
            if any(statement.concerns(name) for name in self._keys):
                self._statements.append(statement._replace(defines=statement.defines or self._statement_dml_defines))

    def _take_rows(self, part: RelayRange, number: int, needs: RangeNeeds) -> None:
        found = scan(MappedRelayRange(part).data, checksum=part.checksum)
        ends = found.groups["end"].tolist()
        places = np.array([place_of(RelayLocation(number, part.start + found.origin(end))) for end in ends], np.int64)
        carried = [CarriedGroup(MappedRelayRange(group.bytes).data, group.bytes.checksum) for group in needs.carried]
        unprepared: list[XaGroup] = []
        parts = deliver(found, carried, unprepared)
        for name, taken in [one for delivered in parts for one in self._reader.read(delivered, places)]:
            if isinstance(taken, UnreadableChange):
                self._unreadable[name].append(taken)
            else:
                self._segments[name].append(taken)
        for group in unprepared:  # its tables are unknown, so it may concern any table
            lost = UnreadableChange(places[[group.number]], unprepared_error(group))
            for changes in self._unreadable.values():
                changes.append(lost)

    def _settle(self, place: int) -> None:
        for name, segments in self._segments.items():
            if self._keys[name].is_row:
                continue  # without a key, every change counts
            done = [one for one in segments if one.last <= place]
            merged = latest(done) if len(done) > 1 else None
            if merged is not None:
                self._segments[name] = [merged, *segments[len(done) :]]

    def missing_images_error(self, table: TableName, place: int, *, key: bool = True) -> PrerequisiteError:
        """Return the error for a change whose images lack the key, or other columns."""
        location = location_at(place)
        head = self._log.at(location)
        before = {gtid.domain_id: gtid for gtid in self._log.at(self._log.last_group(location)).position}
        named = [str(gtid) for gtid in head.position if before.get(gtid.domain_id) != gtid]
        what = "do not contain the key of a row" if key else "contain only some columns of a row"
        return partial_images(", ".join(named) or str(location), table_text(table), what)


def _names(tables: Mapping[TableName, TableKey]) -> str:
    first, *others = sorted(table_text(name) for name in tables)
    return f"{first} and {len(others)} other tables" if others else first


def _without_rows(statement: TableStatement, table: TableName) -> StatementDmlError:
    return StatementDmlError(
        f"{statement.text.gtid} may have changed rows of {table_text(table)}, which is being read, by a statement that "
        "was logged without rows.",
        hint="The binlog does not contain those rows (binlog_format STATEMENT or MIXED). Let every session write with "
        "binlog_format=ROW, and start again with a new checkpoint.",
    )
