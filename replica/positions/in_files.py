"""Times, places and transactions of binlog files on disk as GTID positions.

In: the files in the order of the log. Out: the position, made of the first file's GTID_LIST and the groups behind it.
The files are walked from the beginning until the answer is found; every file begins with its own GTID_LIST. Refused:
MySQL's files, whose GTIDs are other things, damaged ones, and what the files do not hold.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.errors import ConfigError, DataLossError
from replica.files.opening import open_binlog
from replica.option_places import shown_instant
from replica.positions.found import FoundPosition, NextGroup
from replica.protocol.constants import BINLOG_MAGIC, EventType
from replica.protocol.events import decode
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.protocol.header import parse_header
from replica.protocol.transaction_events import GtidListEvent
from replica.rows.decode.batch import Groups
from replica.rows.scan.scan import scan

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from replica.files.keys import KeyRing
    from replica.files.ranges import FileRange


class _Stretch(NamedTuple):
    """Groups of a file, the first of them at `offset`; `before`: the position in front of them."""

    file: str
    offset: int
    groups: Groups
    before: GtidPosition

    def starts(self) -> NDArray[np.int64]:
        """Return where the groups begin in the file."""
        return self.groups.start + self.offset

    def ends(self) -> NDArray[np.int64]:
        return self.groups.end + self.offset

    def gtid(self, row: int) -> Gtid:
        groups = self.groups
        sequence = int(groups.seq_no[row]) % (1 << 64)
        return Gtid(int(groups.domain[row]), int(groups.server_id[row]), sequence)

    def position(self, rows: int) -> GtidPosition:
        """Return the position behind the first `rows` groups."""
        position, domains = self.before, self.groups.domain[:rows]
        for domain in np.unique(domains):
            position = position.advance(self.gtid(int(np.flatnonzero(domains == domain)[-1])))
        return position

    def next(self, row: int) -> NextGroup:
        place = BinlogPosition(self.file, int(self.starts()[row]))
        return NextGroup(self.gtid(row), int(self.groups.commit_ts[row]), place)

    def found(self, row: int, *, inside: bool = False) -> FoundPosition:
        return FoundPosition(self.position(row), self.next(row), inside=inside)


def at_time(files: Sequence[str], time_s: int, keys: KeyRing | None = None) -> FoundPosition:
    """Find the position before the first group committed at `time_s` or later; the end of the files if there is none.

    Raises:
        DataLossError: the files begin later, and not with the first transaction of all.
    """
    last = None
    for stretch in _stretches(files, keys):
        late = stretch.groups.commit_ts >= time_s
        if late.any():
            row = int(np.argmax(late))
            if last is None and not row and stretch.before:
                raise DataLossError(
                    f"the files begin with a transaction of {shown_instant(int(stretch.groups.commit_ts[0]))}: what "
                    f"was committed from {shown_instant(time_s)} on may be in an earlier file.",
                    hint="Name the file before, too.",
                )
            return stretch.found(row)
        last = stretch
    return _end(last, files)


def at_place(files: Sequence[str], place: BinlogPosition, keys: KeyRing | None = None) -> FoundPosition:
    """Find the position of a place in one of the files; inside an event group, the position before it.

    Raises:
        ConfigError: no file of that name is among them, or it ends before the place.
    """
    names = {PurePath(file).name: file for file in files}
    if place.file not in names:
        raise ConfigError(
            f"{place.file} is not among the files.", hint="Name it too, or call it as its file is called."
        )
    with open_binlog(names[place.file], keys) as binlog:
        if binlog.seekable and binlog.size is not None and place.position > binlog.size:
            raise ConfigError(f"{place} lies behind the end of the file, which has {binlog.size} bytes.")
    last = None
    passed = False
    for stretch in _stretches(files, keys):
        if stretch.file == place.file:
            passed = True
            behind_it = stretch.ends() > place.position
            if behind_it.any():
                row = int(np.argmax(behind_it))
                return stretch.found(row, inside=bool(stretch.starts()[row] < place.position))
        elif passed:
            return stretch.found(0)
        last = stretch
    return _end(last, files)


def behind(files: Sequence[str], gtid: Gtid, keys: KeyRing | None = None) -> FoundPosition:
    """Find the position, in all domains, behind the event group of a GTID.

    Raises:
        DataLossError: the files do not hold it.
    """
    stretches = _stretches(files, keys)
    for stretch in stretches:
        groups = stretch.groups
        wanted = np.uint64(gtid.seq_no)
        here = (groups.seq_no.view(np.uint64) == wanted) & (groups.domain == gtid.domain_id)
        here &= groups.server_id == gtid.server_id
        if here.any():
            row = int(np.argmax(here)) + 1
            if row < len(groups):
                return stretch.found(row)
            after = next(stretches, None)
            return FoundPosition(stretch.position(row), after and after.next(0))
    raise DataLossError(f"{gtid} is in none of the files.", hint="mariadb-replica explain tells why.")


def _end(last: _Stretch | None, files: Sequence[str]) -> FoundPosition:
    if last is None:
        raise DataLossError(f"{', '.join(files)}: no transaction is in there.", hint="Name a file that has some.")
    return FoundPosition(last.position(len(last.groups)), None)


def _stretches(files: Sequence[str], keys: KeyRing | None) -> Iterator[_Stretch]:
    """Yield all groups of the files; each stretch has some."""
    position: GtidPosition | None = None
    for file in files:
        with open_binlog(file, keys) as binlog:
            for piece in binlog.ranges():
                listed = _listed(piece)
                position = position if listed is None else listed
                found = scan(piece.data, checksum=piece.checksum) if piece.whole else None
                if found is None or not len(found.groups):
                    continue
                if found.is_mysql or position is None:
                    raise ConfigError(f"{file} holds no GTID positions of MariaDB.", hint="MySQL counts differently.")
                groups = Groups(found.groups, found.expansion)
                stretch = _Stretch(PurePath(file).name, piece.offset, groups, position)
                yield stretch
                position = stretch.position(len(groups))


def _listed(piece: FileRange) -> GtidPosition | None:
    """Return the position that a GTID_LIST at the beginning of a range tells: a file begins with one."""
    data = piece.data
    at = len(BINLOG_MAGIC) if bytes(data[: len(BINLOG_MAGIC)]) == BINLOG_MAGIC else 0
    while at < len(data):
        header = parse_header(data, at)
        if header.event_type == EventType.GTID_LIST:
            event = decode(data[at : at + header.event_length], piece.description)
            return GtidPosition.last_of(event.gtids) if isinstance(event, GtidListEvent) else None
        if header.event_type not in (EventType.FORMAT_DESCRIPTION, EventType.START_ENCRYPTION):
            return None
        at += header.event_length
    return None
