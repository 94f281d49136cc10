"""All changes of some tables in a stretch of a relay log: what it takes to move rows that were read to a place of it.

In: a relay log, two places of it, and the keys of the tables. Out: what is there of each key that the stretch touches
at any place of it (`state_at`), and whether a statement in it may have changed a table (`ddl`). The window goes on as
the log grows, and forgets what lies before a place. Rows of an XA transaction count at its XA COMMIT.

A window holds keys, some 60 bytes a row change besides; images stay in the log's files, which are mapped, and are kept
on disk as long as they are needed even if retention removes them. At MAX_WINDOW_BYTES it is an error.

Refused: changes that were logged as statements, images that lack the key, rows that do not fit the table. Each is an
error for those who ask for a state that depends on it, and only for them. Images that lack other columns tell what
comes behind them, together with the rows that were read (partial_rows.py), and not what was before them.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from replica.errors import PrerequisiteError, RelayError, StatementDmlError
from replica.relay_log.location import RelayLocation, relay_number
from replica.relay_log.walks.ddl import texts_between
from replica.relay_log.walks.mapped_range import MappedRelayRange
from replica.relay_log.walks.xa import follow, prepared_at
from replica.rows.decode.open_rows import partial_images
from replica.rows.scan.scan import scan
from replica.rows.scan.xa import CarriedGroup, deliver, unprepared_error
from replica.schema.patterns import table_text
from replica.snapshot.images.half_record import IS_WHOLE, HalfRecord
from replica.snapshot.images.key_states import Untold, latest, states_of
from replica.snapshot.images.partial_rows import PartialRowError
from replica.snapshot.images.row_halves import HalfSegment, RowImageReader, UnreadableChange
from replica.snapshot.reconcile.table_statements import TableStatements

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.native.record import Records
    from replica.relay_log.log import RelayLog, RelayRange
    from replica.relay_log.walks.xa import Prepared, RangeNeeds
    from replica.rows.scan.xa import XaGroup
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from replica.snapshot.images.key_states import KeyStates
    from replica.snapshot.reconcile.table_statements import TableStatement
    from replica.snapshot.rows.row_block import TableKey

MAX_WINDOW_BYTES: Final = 512 << 20
"""Six million row changes of a short key. Ten seconds of a busy table are a tenth of it."""
RANGE_BYTES: Final = 64 << 20
"""Scanned at once; a larger transaction stands alone."""
_OFFSET_BITS: Final = 40  # a relay file of a terabyte; 8 million of them


def place_of(location: RelayLocation) -> int:
    """Return a location as one number, which orders as locations do."""
    return location.file << _OFFSET_BITS | location.offset


def location_at(place: int) -> RelayLocation:
    """Return the location that a number stands for."""
    return RelayLocation(place >> _OFFSET_BITS, place & ((1 << _OFFSET_BITS) - 1))


class BackfillWindow:
    """The changes of some tables behind `start` and up to `end`, which are group ends. Not thread-safe."""

    def __init__(
        self,
        log: RelayLog,
        start: RelayLocation,
        tables: Mapping[TableName, TableKey],
        schemas: Mapping[TableName, TableSchema],
        *,
        defined: Mapping[TableName, TableSchema] | None = None,
        max_bytes: int = MAX_WINDOW_BYTES,
        untold_defines: bool = False,
    ) -> None:
        """Make an empty window at `start`. `defined`: the tables with all their columns, where `schemas` are without
        some, which images are made without then. `untold_defines`: a change that was logged without rows counts as DDL.

        Raises:
            DataLossError: the log no longer has the place.
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
        self._untold_defines = untold_defines
        self._segments: dict[TableName, list[HalfSegment]] = {name: [] for name in tables}
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
        untold_defines: bool = False,
    ) -> BackfillWindow:
        """Read the changes of a stretch; as `extend` does."""
        window = cls(log, start, tables, schemas, defined=defined, untold_defines=untold_defines)
        window.extend(end, settled=settled)
        return window

    @property
    def size(self) -> int:
        """The bytes of memory that the changes take."""
        return sum(segment.size for segments in self._segments.values() for segment in segments)

    def extend(self, end: RelayLocation, *, settled: RelayLocation | None = None) -> None:
        """Go on up to `end`, a group end of the log; nothing where the window reaches it.

        `settled`: no state before this place will be asked for. Then a window that is half full keeps one change a key
        up to there.

        Raises:
            DataLossError: groups of the stretch were purged.
            ProtocolError: the bytes are damaged.
            RelayError: the window would hold more than its limit.
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
                    f"the changes between the reading of {_names(self._keys)} and the stream take more than "
                    f"{self._max_bytes} bytes of memory.",
                    hint="Let the query take larger batches, so that rows that were read are delivered sooner, or "
                    "read the tables while less is written.",
                )
        self.end = max(self.end, end)

    def trim(self, start: RelayLocation) -> None:
        """Forget what lies before `start`; what shares a part of the log with later changes stays."""
        if start <= self.start:
            return
        self.start, place = start, place_of(start)
        for name in self._keys:
            self._segments[name] = [one for one in self._segments[name] if one.last > place]
            self._unreadable[name] = [one for one in self._unreadable[name] if one.last > place]
        self._statements = [one for one in self._statements if one.location >= start]

    def ddl(self, table: TableName, start: RelayLocation, end: RelayLocation) -> bool:
        """Tell whether a statement of the groups in [start, end) may have changed the table's definition, or its rows
        as a whole.
        """
        self.extend(end)
        return any(
            statement.defines and start <= statement.location < end and statement.concerns(table)
            for statement in self._statements
        )

    def lacks_columns(self, table: TableName, start: RelayLocation, end: RelayLocation) -> bool:
        """Tell whether images of changes behind `start` and up to `end` lack columns."""
        self.extend(end)
        behind, upto = place_of(start), place_of(end)
        return any(
            ((half["place"] > behind) & (half["place"] <= upto) & (half["flags"] & IS_WHOLE == 0)).any()
            for half in (segment.halves for segment in self._segments[table])
        )

    @property
    def table_maps(self) -> Sequence[bytes]:
        """The bodies of the table maps that `slot` of halves counts."""
        return self._reader.table_maps

    def changes(self, table: TableName, start: RelayLocation, upto: RelayLocation) -> Records:
        """Return the halves of all changes behind `start` and up to `upto`, in order; the window holds their images.

        Raises:
            DataLossError, SchemaError, StatementDmlError: as `state_at`.
            ValueError: the window does not go back to `start`.
        """
        self.extend(upto)
        behind, last = place_of(start), place_of(upto)
        halves = [segment.halves for segment in self._behind(table, start, upto)]
        found: Records = np.concatenate([np.empty(0, HalfRecord.dtype), *halves])
        return found[(found["place"] > behind) & (found["place"] <= last)]

    def state_at(
        self, table: TableName, start: RelayLocation, upto: RelayLocation, until: RelayLocation | None = None
    ) -> KeyStates:
        """Return the keys that any change touches behind `start`, or behind `upto` if that is before it, and up to
        `until` (None: the window's end), and what is there of each at `upto`.

        Raises:
            DataLossError: an XA transaction was committed whose rows are not in the log.
            PartialRowError: row images lack columns that it takes.
            PrerequisiteError: row images do not tell the key of their row (binlog_row_image).
            SchemaError: row changes do not fit the table as it is known.
            StatementDmlError: rows of the table were changed by a statement that was logged without them.
            ValueError: the window does not go back to `start`.
        """
        self.extend(upto)
        start = min(start, upto)
        end = max(upto, self.end if until is None else until)
        segments = self._behind(table, start, end)
        table_maps, ordered = self._reader.table_maps, self._keys[table].ordered
        last = place_of(end)
        states = states_of(segments, table_maps, place_of(start), place_of(upto), last, ordered=ordered)
        if isinstance(states, Untold):
            raise self.untold_error(table, states.place) if states.key else PartialRowError(states.place)
        if states.chains is not None and table in self._computing:
            # Images leave out generated columns also where their values change (measured on 11.8, all but FULL).
            raise PartialRowError(states.chains.last)
        return states

    def _behind(self, table: TableName, start: RelayLocation, end: RelayLocation) -> list[HalfSegment]:
        """Return the segments with changes behind a place, if all up to `end` can be read.

        The window may go further for the sake of other tables: there the table may have been made again, with another
        key.
        """
        if start < self.start and self._log.ranges(start, self.start, RANGE_BYTES):
            raise ValueError(f"the window begins at {self.start}, behind {start}")
        for statement in self._statements:
            if not statement.defines and start <= statement.location < end and statement.concerns(table):
                raise _without_rows(statement, table)
        behind, last = place_of(start), place_of(end)
        for change in self._unreadable[table]:
            if change.between(behind, last):
                raise type(change.error)(change.error.message, hint=change.error.hint)
        return [one for one in self._segments[table] if one.last > behind]

    def _take_statements(self, begin: RelayLocation, end: RelayLocation, needs: RangeNeeds) -> None:
        for group in needs.carried:
            if group.location < self.start:
                limit = RelayLocation(group.location.file, group.bytes.end)
                self._follower.prepared_before(group.xid, texts_between(self._log, group.location, limit))
        for statement in self._follower.follow(texts_between(self._log, begin, end)):
            if any(statement.concerns(name) for name in self._keys):
                self._statements.append(statement._replace(defines=statement.defines or self._untold_defines))

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
        for group in unprepared:  # of tables that no one here knows, so of any
            lost = UnreadableChange(places[[group.number]], unprepared_error(group))
            for changes in self._unreadable.values():
                changes.append(lost)

    def _settle(self, place: int) -> None:
        for name, segments in self._segments.items():
            if self._keys[name].is_row:
                continue  # each change of equal rows counts
            done = [one for one in segments if one.last <= place]
            merged = latest(done) if len(done) > 1 else None
            if merged is not None:
                self._segments[name] = [merged, *segments[len(done) :]]

    def untold_error(self, table: TableName, place: int, *, key: bool = True) -> PrerequisiteError:
        """Make the error for a change whose images do not tell the key, or lack other columns."""
        location = location_at(place)
        head = self._log.at(location)
        before = {gtid.domain_id: gtid for gtid in self._log.at(self._log.last_group(location)).position}
        named = [str(gtid) for gtid in head.position if before.get(gtid.domain_id) != gtid]
        what = "do not tell the key of a row" if key else "hold a part of the columns of a row"
        return partial_images(", ".join(named) or str(location), table_text(table), what)


def _names(tables: Mapping[TableName, TableKey]) -> str:
    first, *others = sorted(table_text(name) for name in tables)
    return f"{first} and {len(others)} other tables" if others else first


def _without_rows(statement: TableStatement, table: TableName) -> StatementDmlError:
    return StatementDmlError(
        f"{statement.text.gtid} may have changed rows of {table_text(table)}, which is being read, by a statement that "
        "was logged without rows.",
        hint="Those rows are nowhere in the binlog (binlog_format STATEMENT or MIXED). Let every session write with "
        "binlog_format=ROW, and start again with a new checkpoint.",
    )
