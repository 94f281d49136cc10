"""The search for one transaction in a relay log: halving over files, then over the sidecar's entries, then a look at 64
KB.

In: a relay log and a search for a GTID. Out: its event group, or None. Where sequence numbers of a domain once went
back (a primary without gtid_strict_mode), halving may miss it, and then every file is walked, the newest first.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from replica.relay_log.file_head import read_file_head
from replica.relay_log.index import FileIndex, last_entry
from replica.relay_log.location import RelayLocation, index_path, relay_number, relay_numbers, relay_path
from replica.tail.following import stretch

if TYPE_CHECKING:
    from replica.dump.reading import Part
    from replica.protocol.gtid import Gtid, GtidPosition
    from replica.relay_log.log import RelayLog
    from replica.tail.search import Search


class FoundGroup(NamedTuple):
    """One event group in a relay log: its file, and a part that holds nothing else."""

    number: int
    part: Part

    @property
    def start(self) -> RelayLocation:
        return RelayLocation(self.number, self.part.piece.offset)

    @property
    def end(self) -> RelayLocation:
        return RelayLocation(self.number, self.part.piece.end)


def find_group(log: RelayLog, search: Search) -> FoundGroup | None:
    """Return the event group that `search` is for, if the log holds it; else `search` knows its neighbours.

    Raises:
        RelayError: a file of the log is not readable as such.
        DataLossError: a file was purged while it was looked at.
        AmbiguousPositionError: the log holds several with this GTID.
    """
    head = log.head()
    if head is None:
        return None
    log.refuse_repeated(search.gtid)
    numbers = [number for number in relay_numbers(log.directory) if RelayLocation(number, 0) < head.location]
    before = bisect_left(numbers, 1, key=lambda number: int(not _begins_before(log.directory, number, search.gtid)))
    if before:
        _walk_on(log, search, numbers[before - 1 :], head.location)
    if search.found is None and any(_went_back(log.directory, number) for number in numbers):
        _walk_all(log, search, numbers, head.location)
    return FoundGroup(relay_number(Path(search.found.name)), search.found) if search.found else None


def _walk_on(log: RelayLog, search: Search, numbers: list[int], end: RelayLocation) -> None:
    """Look from the last known place before the GTID until it, or one behind it, is found: in the first file or the
    next.
    """
    begin, position = _last_end_before(log.directory, numbers[0], search.gtid)
    search.before = position.get(search.gtid.domain_id)
    for number in numbers:
        start = RelayLocation(number, begin if number == numbers[0] else 0)
        for part in stretch(log, start, min(RelayLocation(number + 1, 0), end)):
            if search.feed(part) or search.after is not None:
                return


def _walk_all(log: RelayLog, search: Search, numbers: list[int], end: RelayLocation) -> None:
    for number in reversed(numbers):
        parts = stretch(log, RelayLocation(number, 0), min(RelayLocation(number + 1, 0), end))
        if any(search.feed(part) for part in parts):
            return


def _begins_before(directory: Path, number: int, gtid: Gtid) -> bool:
    return _is_before(read_file_head(relay_path(directory, number)).position, gtid)


def _is_before(position: GtidPosition, gtid: Gtid) -> bool:
    known = position.get(gtid.domain_id)
    return known is None or known.seq_no < gtid.seq_no


def _last_end_before(directory: Path, number: int, gtid: Gtid) -> tuple[int, GtidPosition]:
    """Return the last entry of the sidecar before the GTID, or the beginning of the file."""
    entries = _index(directory, number).entries
    before = bisect_left(entries, 1, key=lambda entry: int(not _is_before(entry.position, gtid)))
    if before:
        return entries[before - 1].end, entries[before - 1].position
    return 0, read_file_head(relay_path(directory, number)).position


def _went_back(directory: Path, number: int) -> bool:
    """Tell whether a domain's numbers went back in the file or before; its sidecar's end says it of all of it."""
    entry = last_entry(index_path(directory, number))
    entries = [entry] if entry is not None else _index(directory, number).entries[-1:]
    return any(entry.unordered for entry in entries)


def _index(directory: Path, number: int) -> FileIndex:
    index = FileIndex(index_path(directory, number))
    index.refresh()
    return index
