"""Reader of binlog files on disk as one log: ranges, single groups, positions for times, places and transactions.

`FilesReader` takes the files in log order and scans them from the beginning until it has the answer. A position
consists of a file's GTID_LIST and the groups after it. Refused: damaged files and, in searches for positions, times,
places and transactions that the files do not contain, and MySQL's files, whose GTIDs differ.
"""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.errors import ConfigError, DataLossError
from replica.options.values import shown_instant
from replica.protocol.constants import BINLOG_MAGIC, EventType
from replica.protocol.events.decode import decode
from replica.protocol.events.transaction_events import GtidListEvent
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.protocol.header import parse_header
from replica.readers.files.binlog import STANDARD_INPUT, open_binlog
from replica.readers.log.reader import FoundPosition, NextGroup, Part
from replica.relay_log.directory.identity import stores_lower_case
from replica.relay_log.groups.groups import GtidSearch
from replica.rows.decode.batch import Groups
from replica.rows.scan.scan import scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from replica.readers.files.binlog import BinlogFile
    from replica.readers.files.encryption import KeyRing
    from replica.readers.files.ranges import FileRange


class _FileGroups(NamedTuple):
    """Groups of a file in a range that starts at `offset`.

    `before` is the position before the first group.
    """

    file: str
    offset: int
    groups: Groups
    before: GtidPosition

    def starts(self) -> NDArray[np.int64]:
        """Return the offsets in the file at which the groups begin."""
        return self.groups.start + self.offset

    def ends(self) -> NDArray[np.int64]:
        return self.groups.end + self.offset

    def gtid(self, row: int) -> Gtid:
        groups = self.groups
        sequence = int(groups.seq_no[row]) % (1 << 64)
        return Gtid(int(groups.domain[row]), int(groups.server_id[row]), sequence)

    def position(self, rows: int) -> GtidPosition:
        """Return the position after the first `rows` groups."""
        position, domains = self.before, self.groups.domain[:rows]
        for domain in np.unique(domains):
            position = position.advance(self.gtid(int(np.flatnonzero(domains == domain)[-1])))
        return position

    def next(self, row: int) -> NextGroup:
        place = BinlogPosition(self.file, int(self.starts()[row]))
        return NextGroup(self.gtid(row), int(self.groups.commit_ts[row]), place)

    def found(self, row: int, *, inside: bool = False) -> FoundPosition:
        return FoundPosition(self.position(row), self.next(row), inside=inside)


class FilesReader:
    """Reader of `files` in log order, which may include standard input; `keys` open encrypted files.

    `on_progress` is called with a file and the offset that a search has reached.
    """

    def __init__(
        self,
        files: Sequence[str],
        keys: KeyRing | None = None,
        on_progress: Callable[[BinlogFile, int], None] = lambda _file, _offset: None,
    ) -> None:
        self._files = files
        self._keys = keys
        self._on_progress = on_progress

    def parts(
        self,
        *,
        cut_at_ddl: bool = False,
        skip_damaged: bool = False,
        at_end: Callable[[BinlogFile], None] | None = None,
    ) -> Iterator[Part]:
        """Yield all ranges of all files, as `BinlogFile.ranges` does.

        `at_end` is called with each completely read file.
        """
        for file in self._files:
            name = PurePath(file).name if file != STANDARD_INPUT else "standard input"
            lower_case = file != STANDARD_INPUT and stores_lower_case(Path(file).parent)  # known for relay files
            with open_binlog(file, self._keys) as binlog:
                for piece in binlog.ranges(skip_damaged=skip_damaged, cut_at_ddl=cut_at_ddl):
                    yield Part(name, binlog, piece, lower_case)
                if at_end is not None:
                    at_end(binlog)

    def find(self, search: GtidSearch) -> Part | None:
        """Return a part with the group that `search` looks for, scanning from the beginning; None without a match.

        If several groups of a range match, the last one counts.

        Raises:
            ConfigError: A file cannot be read.
            ProtocolError: A file is damaged before the group.
        """
        for part in self._searched():
            if not part.piece.whole:
                continue
            found = scan(part.piece.data, checksum=part.piece.checksum)
            groups = Groups(found.groups, found.expansion)
            rows = search.matches(groups.domain, groups.server_id, groups.seq_no)
            if len(rows):
                return part.cut(int(groups.start[rows[-1]]), int(groups.end[rows[-1]]))
        return None

    def xa_parts(self) -> Iterator[Part]:
        """Yield all parts of the files; none if standard input is among them, because it can be read only once."""
        return iter(()) if STANDARD_INPUT in self._files else self._complete_parts()

    def at_time(self, time_s: int) -> FoundPosition:
        """Return the position before the first group committed at `time_s` or later, or the end of the files.

        Raises:
            DataLossError: The files begin later, and not with the first transaction ever.
        """
        last = None
        for stretch in self._stretches():
            late = stretch.groups.commit_ts >= time_s
            if late.any():
                row = int(np.argmax(late))
                if last is None and not row and stretch.before:
                    raise DataLossError(
                        f"the files begin with a transaction of {shown_instant(int(stretch.groups.commit_ts[0]))}: "
                        f"transactions committed from {shown_instant(time_s)} on may be in an earlier file.",
                        hint="Name the file before it, too.",
                    )
                return stretch.found(row)
            last = stretch
        return self._end(last)

    def at_place(self, place: BinlogPosition) -> FoundPosition:
        """Return the position of a place in one of the files; inside an event group, the position before the group.

        Raises:
            ConfigError: No file has that name, or the file ends before the place.
        """
        names = {PurePath(file).name: file for file in self._files}
        if place.file not in names:
            raise ConfigError(
                f"{place.file} is not among the files.", hint="Name this file too, or give the file's own name."
            )
        with open_binlog(names[place.file], self._keys) as binlog:
            if binlog.seekable and binlog.size is not None and place.position > binlog.size:
                raise ConfigError(f"{place} is after the end of the file, which has {binlog.size} bytes.")
        last = None
        in_file = False
        for stretch in self._stretches():
            if stretch.file == place.file:
                in_file = True
                later = stretch.ends() > place.position
                if later.any():
                    row = int(np.argmax(later))
                    return stretch.found(row, inside=bool(stretch.starts()[row] < place.position))
            elif in_file:
                return stretch.found(0)
            last = stretch
        return self._end(last)

    def after_group(self, gtid: Gtid) -> FoundPosition:
        """Return the position, in all domains, after the event group of a GTID.

        Raises:
            DataLossError: The files do not contain the GTID.
        """
        search = GtidSearch(gtid)
        stretches = self._stretches()
        for stretch in stretches:
            groups = stretch.groups
            rows = search.matches(groups.domain, groups.server_id, groups.seq_no)
            if len(rows):
                row = int(rows[0]) + 1
                if row < len(groups):
                    return stretch.found(row)
                after = next(stretches, None)
                return FoundPosition(stretch.position(row), after and after.next(0))
        raise DataLossError(f"{gtid} is in none of the files.", hint="mariadb-replica explain shows why.")

    def _end(self, last: _FileGroups | None) -> FoundPosition:
        if last is None:
            raise DataLossError(
                f"{', '.join(self._files)}: no transaction was found.", hint="Name a file that has transactions."
            )
        return FoundPosition(last.position(len(last.groups)), None)

    def _complete_parts(self) -> Iterator[Part]:
        return (part for part in self.parts() if part.piece.whole)

    def _searched(self) -> Iterator[Part]:
        for part in self.parts():
            yield part
            self._on_progress(part.binlog, part.piece.end)

    def _stretches(self) -> Iterator[_FileGroups]:
        """Yield all groups of the files, at least one at a time."""
        position: GtidPosition | None = None
        for name, binlog, piece, _ in self._searched():
            listed = _listed(piece)
            position = position if listed is None else listed
            found = scan(piece.data, checksum=piece.checksum) if piece.whole else None
            if found is None or not len(found.groups):
                continue
            if found.is_mysql or position is None:
                raise ConfigError(
                    f"{binlog.name} holds no GTID positions of MariaDB.", hint="MySQL's GTIDs are different."
                )
            groups = Groups(found.groups, found.expansion)
            stretch = _FileGroups(name, piece.offset, groups, position)
            yield stretch
            position = stretch.position(len(groups))


def _listed(piece: FileRange) -> GtidPosition | None:
    """Return the position in the GTID_LIST at the start of a range; None if the range is not the start of a file."""
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
