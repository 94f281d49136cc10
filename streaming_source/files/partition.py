"""Partitions of a batch read over files: stretches of one binlog file, by path, as plain values that can be pickled.

A plain file is cut into partitions of a few megabytes. A compressed or encrypted file can be read only from its
beginning. So it is one partition, and its task finds the planner's stretches in one pass. A stretch carries the table
definitions at its place, and the places of XA transactions that were prepared before it and are committed in it.
Partitions carry no keys, only the names of key files.

It is an error if the file is not on the machine of the task, or is not the file that was planned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from replica.errors import ConfigError, RelayError
from streaming_source.files.paths import primary_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.files.binlog import BinlogFile, FileRange
    from replica.files.keys import KeyRing
    from replica.protocol.header import FormatDescriptionEvent
    from replica.rows.scan.xa import CarriedGroup
    from streaming_source.selection.group_extent import GroupExtent
    from streaming_source.selection.pushed_filters import ChangeFilter
    from streaming_source.selection.resolver import Catalog

RANGE_BYTES: Final = 8 << 20
"""Bytes of a partition: some 50 ms of decoding and half a second of Spark's work."""


@dataclass(frozen=True)
class FileAccess:
    """A file and its keys. `file_key`: the file with the password of an encrypted `key_file`."""

    path: str
    key_file: str | None = None
    file_key: str | None = None
    skip_damaged: bool = False

    def open(self) -> BinlogFile:
        """Open the file on this machine. It raises the errors of `open_binlog` and of key files."""
        from replica.files.opening import open_binlog

        return open_binlog(self.path, self._keys())

    def _keys(self) -> KeyRing | None:
        from replica.files.keys import KeyRing

        if self.key_file is None:
            return None
        return KeyRing.from_file(self.key_file, filekey=self.file_key and f"FILE:{self.file_key}")

    def ranges(self, file: BinlogFile) -> Iterator[FileRange]:
        """Yield the ranges of the file from its beginning. Planner and tasks get the same ranges."""
        return file.ranges(max_bytes=RANGE_BYTES, skip_damaged=self.skip_damaged, cut_at_ddl=True)


class PreparedInFile(NamedTuple):
    """Place of an XA group that is committed later: bytes [start, end) of a file."""

    access: FileAccess
    start: int
    end: int
    description: FormatDescriptionEvent


@dataclass(frozen=True)
class Stretch:
    """Whole groups, bytes [start, end) of the file. `description` is the format of their events."""

    start: int
    end: int
    description: FormatDescriptionEvent
    catalog: Catalog
    carried: tuple[PreparedInFile, ...] = ()
    extent: GroupExtent | None = None


class Piece(NamedTuple):
    """Bytes to decode, and the metadata that decoding takes."""

    data: memoryview
    offset: int  # of the first byte in the file
    checksum: bool
    catalog: Catalog
    carried: Sequence[CarriedGroup]


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """The part of one file that a task reads. `stretches` are in the order of the file."""

    access: FileAccess
    stretches: tuple[Stretch, ...]

    @property
    def file(self) -> str:
        """The primary's name of the file."""
        return primary_name(self.access.path)

    def filtered(self, pushed: ChangeFilter) -> FilePartition:
        """Return the partition without stretches in which no row can pass the filter."""
        left = (s for s in self.stretches if s.extent is None or pushed.may_match(s.extent))
        return replace(self, stretches=tuple(left))

    def __repr__(self) -> str:
        return f"FilePartition({self.access.path}, bytes {self.stretches[0].start} to {self.stretches[-1].end})"

    def pieces(self) -> Iterator[Piece]:
        """Yield the stretches after reading them and verifying their checksums.

        Raises:
            RelayError: the file is not on this machine, or is not the one that was planned.
            ProtocolError: it was damaged after the survey.
        """
        try:
            file = self.access.open()
        except ConfigError as error:
            raise RelayError(
                error.message, hint="Put the file on storage that the driver and all executors can read."
            ) from None
        with file:
            if file.seekable:
                yield from self._apart(file)
            else:
                yield from self._along(file)

    def _apart(self, file: BinlogFile) -> Iterator[Piece]:
        for stretch in self.stretches:
            if file.size is not None and file.size < stretch.end:
                raise self._changed()
            carried = [_fetched(group) for group in stretch.carried]
            for part in file.ranges(
                max_bytes=stretch.end - stretch.start,
                start=stretch.start,
                stop=stretch.end,
                description=stretch.description,
            ):
                yield Piece(part.data, part.offset, part.checksum, stretch.catalog, carried)

    def _along(self, file: BinlogFile) -> Iterator[Piece]:
        """Read the file in one pass, and keep the XA groups that later stretches need."""
        wanted = {stretch.start: stretch for stretch in self.stretches}
        awaited = [group for stretch in self.stretches for group in stretch.carried if group.access == self.access]
        kept: dict[PreparedInFile, CarriedGroup] = {}
        for part in self.access.ranges(file):
            stretch = wanted.pop(part.offset, None)
            if stretch is not None and stretch.end == part.end:
                carried = [kept.pop(group) if group in kept else _fetched(group) for group in stretch.carried]
                yield Piece(part.data, part.offset, part.checksum, stretch.catalog, carried)
            elif stretch is not None:
                raise self._changed()
            kept.update((group, _cut(part, group)) for group in awaited if part.offset <= group.start < part.end)
            if not wanted:
                return
        raise self._changed()

    def _changed(self) -> RelayError:
        return RelayError(
            f"{self.access.path} is not the file that load() read.", hint="The file was replaced: load() again."
        )


def _fetched(group: PreparedInFile) -> CarriedGroup:
    """Read an XA group from its file, which need not be open."""
    with group.access.open() as file:
        if file.seekable:
            size = group.end - group.start
            parts = file.ranges(max_bytes=size, start=group.start, stop=group.end, description=group.description)
            return _cut(next(parts), group)
        for part in group.access.ranges(file):
            if part.offset <= group.start < part.end:
                return _cut(part, group)
    raise RelayError(f"{group.access.path} no longer holds bytes {group.start} to {group.end}.", hint="load() again.")


def _cut(part: FileRange, group: PreparedInFile) -> CarriedGroup:
    from replica.rows.scan.xa import CarriedGroup

    content = part.data[group.start - part.offset : group.end - part.offset]
    # A view would keep its whole range in memory.
    kept = content if 2 * len(content) > len(part.data) else bytes(content)
    return CarriedGroup(kept, bool(group.description.checksum))
