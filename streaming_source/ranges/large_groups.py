"""Parts of one large transaction, which several tasks share.

`LargeGroups.parts` takes the place of an event group in the relay log, or of a prepared XA group and the group that
commits it. It returns ranges in order, cut between rows events. Each range comes with the events that it lacks, the
ordinal of its first row, and whether it has the transaction's last delivered row. Parts without a selected row are
dropped. A group that delivers nothing at its place (prepared, rolled back) has no parts. A group that cannot be cut is
one range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import OrderedDict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.protocol import header as checksums
from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, ChecksumAlgorithm, EventType, GtidFlag
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.header import parse_header
from replica.relay_log.walks.ddl import MappedRelayRange
from replica.rows.decode.frontier import OpenEnds
from replica.rows.decode.row_index import RowIndex, index_rows
from replica.rows.scan import records as r
from streaming_source.rows.partition import MappedRange, RowBounds, Surroundings
from streaming_source.rows.statements import changes_without_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.relay_log.log import RelayRange
    from streaming_source.selection.resolver import SelectedTables

INDEXES_KEPT: Final = 4
"""Indexes to keep, of 1 MB each. Spark plans one batch at a time, and each batch of a transaction plans it again."""
_FLAGS_AT: Final = HEADER_LENGTH + 12  # in a GTID event
_COMMIT: Final = b"\1\0\0\0" + bytes(4) + b"\0" + bytes(4) + b"\0COMMIT"  # thread, time, lengths; no database
STATEMENT_SHARE: Final = 4
"""Least ratio of a part's size to the text of the statement in which the part begins, because the part repeats the
text.
"""


class _Key(NamedTuple):
    """A group, identified by its first event, because file numbers restart when a log does."""

    path: str
    start: int
    end: int
    gtid_event: bytes


@dataclass(frozen=True, slots=True)
class _Events:
    """First and last event of the group under whose GTID the rows are delivered."""

    head: bytes
    tail: bytes


class LargeGroups:
    """Large groups of one query.

    Args:
        tables: the selected tables.
    """

    def __init__(self, tables: SelectedTables) -> None:
        self._tables = tables
        self._indexes: OrderedDict[_Key, RowIndex | None] = OrderedDict()

    def index(self, group: RelayRange) -> RowIndex | None:
        """Return where a group can be cut; None if it cannot. Recent results are cached."""
        mapped = MappedRelayRange(group)
        data = mapped.data
        if self._tables.include_ddl and data[_FLAGS_AT] & GtidFlag.DDL:
            return None  # CREATE TABLE … SELECT: its statement is a row before its changes
        key = _Key(group.path, group.start, group.end, bytes(data[: int.from_bytes(data[9:13], "little")]))
        if key not in self._indexes:
            unlogged = self._tables.statement_rows and changes_without_rows(data, checksum=group.checksum)
            self._indexes[key] = (
                None  # a statement that is delivered as a row comes before the group's rows
                if unlogged
                else index_rows(data, checksum=group.checksum, resolver=self._tables, on_progress=mapped.release_before)
            )
        self._indexes.move_to_end(key)
        while len(self._indexes) > INDEXES_KEPT:
            self._indexes.popitem(last=False)
        return self._indexes[key]

    def parts(
        self, group: RelayRange, target_bytes: int, rows: Sequence[RowBounds] = (), *, commit: RelayRange | None = None
    ) -> list[MappedRange]:
        """Cut the group into ranges of about `target_bytes`.

        Args:
            group: one event group.
            target_bytes: the size of a part.
            rows: the needed rows of this and other groups. Parts without a needed row are dropped.
            commit: for a prepared group, the group that commits it.
        """
        index = self.index(group)
        if index is None:
            return [MappedRange(*group) if commit is None else MappedRange(*commit, carried=(MappedRange(*group),))]
        if not index.total_selected or (commit is None and index.ending == r.ENDS_XA_PREPARE):
            return []
        events = _events(group, index) if commit is None else _commit_events(commit)
        wanted = _wanted_rows(index, rows) if commit is None else _wanted_rows(index, rows, events.head)
        if wanted[0] >= wanted[1]:
            return []
        cuts = _cuts(index, target_bytes, *wanted)
        parts = []
        for begin, end in pairwise(cuts):
            before, follow = _rows_at(index, begin), _selected_at(index, end)
            if follow == _selected_at(index, begin):
                continue
            undivided = commit is None
            first, last = begin < 0, end == len(index.offsets)
            head = b"" if first and undivided else events.head + (b"" if first else index.heads[index.head[begin]])
            parts.append(
                MappedRange(
                    group.path,
                    group.start + _offset_at(index, begin, inner=not undivided),
                    group.start + _offset_at(index, end, inner=not undivided),
                    group.checksum,
                    ends=OpenEnds(before, index.total_selected > follow, committed=not undivided),
                    around=_around(index, group, begin, head, b"" if last and undivided else events.tail),
                )
            )
        return parts


def _around(index: RowIndex, group: RelayRange, begin: int, head: bytes, tail: bytes) -> Surroundings | None:
    statement = (0, 0)
    if begin >= 0 and index.statements[begin]:
        statement = (group.start + int(index.statements[begin]), group.start + int(index.statement_ends[begin]))
    around = Surroundings(head, tail, statement)
    return around if around.size else None


def _cuts(index: RowIndex, target_bytes: int, first: int, end: int) -> list[int]:
    """Return the numbers of the borders between parts: -1 is the group's begin, and the number of borders is its end.

    Parts have similar sizes. Their number follows from `target_bytes`, for rows `first` to `end` only.
    """
    low = bisect_right(index.rows, first) - 1
    high = bisect_left(index.rows, end)
    begin = _offset_at(index, low)
    size = _offset_at(index, high) - begin
    count = max(1, round(size / target_bytes))
    wanted = begin + np.arange(1, count) * (size / count)
    places = low + 1 + np.searchsorted(index.offsets[low + 1 : high], wanted)
    cuts = [low]
    for place in places.tolist():
        text = int(index.statement_ends[place] - index.statements[place]) if place < high else 0
        done = 0 if place >= high else int(index.offsets[place]) - _offset_at(index, cuts[-1])
        if cuts[-1] < place < high and done >= text * STATEMENT_SHARE:
            cuts.append(place)
    return [*cuts, high]


def _offset_at(index: RowIndex, border: int, *, inner: bool = False) -> int:
    """Return the byte offset of a border, with `inner` without the group's first and last event."""
    if border < 0:
        return index.first_event_end if inner else 0
    if border == len(index.offsets):
        return index.last_event if inner else index.size
    return int(index.offsets[border])


def _rows_at(index: RowIndex, border: int) -> int:
    if border < 0:
        return 0
    return index.total_rows if border == len(index.rows) else int(index.rows[border])


def _selected_at(index: RowIndex, border: int) -> int:
    if border < 0:
        return 0
    return index.total_selected if border == len(index.selected) else int(index.selected[border])


def _wanted_rows(index: RowIndex, rows: Sequence[RowBounds], gtid_event: bytes = b"") -> tuple[int, int]:
    """Return the needed ordinals of the group, [first, end): all of them unless `rows` names the group."""
    domain, seq_no = index.gtid.domain_id, index.gtid.seq_no
    if gtid_event:
        seq_no, domain = (int.from_bytes(gtid_event[at : at + n], "little") for at, n in ((19, 8), (27, 4)))
    for bounds in rows:
        if (bounds.domain, bounds.seq_no) == (domain, seq_no):
            return bounds.first, index.total_rows if bounds.end is None else bounds.end
    return 0, index.total_rows


def _events(group: RelayRange, index: RowIndex) -> _Events:
    with open(group.path, "rb") as file:  # noqa: PTH123  (as in partition.py)
        file.seek(group.start)
        head = file.read(index.first_event_end)
        file.seek(group.start + index.last_event)
        return _Events(head, file.read(group.end - group.start - index.last_event))


def _commit_events(commit: RelayRange) -> _Events:
    """Return the GTID event of an XA COMMIT, without the flag that its first statement is its last, and a COMMIT event.

    The group's own statement would not end a transaction, and an XID event would give the rows an XID that they do not
    have.
    """
    with open(commit.path, "rb") as file:  # noqa: PTH123  (as in partition.py)
        file.seek(commit.start)
        data = memoryview(file.read(commit.end - commit.start))
    gtid = parse_header(data)
    at = gtid.event_length
    while at + (last := parse_header(data, at)).event_length < len(data):
        at += last.event_length
    head = bytearray(data[: gtid.event_length])
    head[_FLAGS_AT] &= ~GtidFlag.STANDALONE & 0xFF
    algorithm = ChecksumAlgorithm.CRC32 if commit.checksum else ChecksumAlgorithm.NONE
    if commit.checksum:
        head = bytearray(checksums.append(bytes(head[:-CHECKSUM_LENGTH])))
    tail = encode_event(
        EventType.QUERY, _COMMIT, server_id=last.server_id, checksum=algorithm, timestamp=last.timestamp
    )
    return _Events(bytes(head), tail)
