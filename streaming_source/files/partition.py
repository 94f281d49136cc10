"""Partitions of a batch read over files: stretches of one binlog file, by path, as plain values that can be pickled.

A plain file is cut into partitions of a few megabytes. A compressed or encrypted file can be read only from its
beginning. So it is one partition, and its task finds the planner's stretches in one pass. A stretch carries the table
definitions at its place, and the places of XA transactions that were prepared before it and are committed in it.
Partitions carry no keys, only the names of key files.

It is an error if the file is not on the machine of the task, or is not the file that was planned.
"""

from __future__ import annotations

import glob
import logging
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from pyspark.sql.datasource import InputPartition

from replica.errors import ConfigError, RelayError
from streaming_source.rows.reader import RecordBatches, decoder_of, exempt_imports_from_collection, noted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from replica.protocol.header import FormatDescriptionEvent
    from replica.readers.files.binlog import BinlogFile, FileRange
    from replica.readers.files.encryption import KeyRing
    from replica.rows.scan.xa import CarriedGroup, XaGroup
    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.pushed_filters import ChangeFilter, GroupExtent
    from streaming_source.selection.resolver import Catalog


def read_file_changes(partition: FilePartition, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Yield the row changes of one partition of a batch read over files. Errors are those of `read_changes`."""
    without_rows: list[XaGroup] = []  # XA COMMITs without selected rows; the planner has examined them
    with noted(f"while reading {partition!r}"):
        made = RecordBatches(plan)
        for piece in partition.pieces():
            facts = made.facts(partition.file, piece.data)
            decoder = decoder_of(replace(plan, tables=replace(plan.tables, catalog=piece.catalog)))
            with noted(f"offsets count from byte {piece.offset} of {partition.access.path}"):
                choice = made.choice(piece.data, checksum=piece.checksum, carried=piece.carried)
                decoded = decoder.decode(
                    piece.data,
                    checksum=piece.checksum,
                    carried=piece.carried,
                    unprepared=without_rows,
                    only=choice.of_groups,
                )
                yield from made.batches(decoded, facts, choice)
        exempt_imports_from_collection()


# `find_binlogs` takes files, directories and globs. In directories and globs it ignores files that are not binlogs:
# index files, dumps, folders. A file that is named directly has to be a binlog. Within one directory or glob, the
# numbers at the end of names order the files. Files without numbers are ordered by content: by the GTID position at
# which each begins, then by the second of its first event. Modification times are not used, because copying changes
# them. Several paths keep their order.
#
# A gap between numbers is logged. Errors: a path that does not exist, a directory without a binlog, a directory with
# the binlogs of two servers or with relay logs beside binlogs (they have the same transactions twice), and one file
# both plain and compressed.


COMPRESSED_SUFFIXES: Final = (".gz", ".zst", ".xz")
_log = logging.getLogger(__name__)
_IGNORED_SUFFIXES: Final = (".index", ".idx")
_NUMBERED = re.compile(r"(.+)\.(\d{6,})")  # as servers name them: at least six digits
_GLOB = re.compile(r"[*?\[]")
_SHOWN: Final = 3  # most names in a message

Age = tuple[int, int]
"""Sort key of a file without a number: the groups before it, and the Unix second of its first event."""


class FileProbes(NamedTuple):
    """Functions that inspect files: whether a file is a binlog, possibly a compressed one, and its age."""

    is_binlog: Callable[[Path], bool]
    age: Callable[[Path], Age]


def primary_name(path: str) -> str:
    """Return the server's name of the file: its name without a suffix for compression."""
    name = Path(path).name
    return name.removesuffix(next((suffix for suffix in COMPRESSED_SUFFIXES if name.endswith(suffix)), ""))


def find_binlogs(paths: Iterable[str], probes: FileProbes) -> list[str]:
    """Return the absolute paths of all binlog files that `paths` name, each once, in stream order.

    Raises:
        ConfigError: a path names no binlog, or its files cannot be put in order.
    """
    found: dict[str, None] = {}
    for path in paths:
        for file in _binlogs_of(path, probes):
            found[str(file.resolve())] = None
    return list(found)


def _binlogs_of(path: str, probes: FileProbes) -> list[Path]:
    here = Path(path)
    if here.is_file():
        return [here]
    if here.is_dir():
        candidates = sorted(here.iterdir())
        where = f"directory {path}"
    elif _GLOB.search(path):
        candidates = [Path(name) for name in sorted(glob.glob(path))]  # noqa: PTH207  (absolute patterns too)
        where = f"path {path}"
    else:
        raise ConfigError(
            f"there is no file {path} on this machine.",
            hint="The driver and all tasks open the path themselves: put it on storage that every node can read.",
        )
    files = [file for file in candidates if file.suffix not in _IGNORED_SUFFIXES and file.is_file()]
    binlogs = [file for file in files if probes.is_binlog(file)]
    if not binlogs:
        others = f"{len(candidates)} other entries" if candidates else "nothing at all"
        raise ConfigError(
            f"{where} holds no binlog file, but {others}.",
            hint="Name the folder that log_bin points to, or the files: /var/lib/mysql/binlog.0*.",
        )
    return _ordered(where, binlogs, probes.age)


def _ordered(where: str, files: Sequence[Path], age: Callable[[Path], Age]) -> list[Path]:
    numbered = {file: _NUMBERED.fullmatch(primary_name(str(file))) for file in files}
    if not all(numbered.values()):
        _refuse_twins(where, [(primary_name(str(file)), file) for file in files])
        ages = {file: age(file) for file in files}
        return sorted(files, key=lambda file: (ages[file], file.name))
    keys = {file: (match[1], int(match[2])) for file, match in numbered.items() if match}
    bases = sorted({base for base, _ in keys.values()})
    if len(bases) > 1:
        raise ConfigError(
            f"{where} holds {len(bases)} series of binlogs: {', '.join(f'{base}.*' for base in bases[:_SHOWN])}. "
            "They may hold the same transactions, and their order is unknown.",
            hint=f"Name one of them, {Path(files[0]).parent / bases[0]}.*, or several in their order, separated by "
            "commas.",
        )
    _refuse_twins(where, [(keys[file], file) for file in files])
    ordered = sorted(files, key=keys.__getitem__)
    for before, after in pairwise(ordered):
        if keys[after][1] - keys[before][1] > 1:
            _log.warning("%s: binlogs are missing between %s and %s", where, before.name, after.name)
    return ordered


def _refuse_twins(where: str, keyed: Iterable[tuple[object, Path]]) -> None:
    seen: dict[object, Path] = {}
    for key, file in keyed:
        if key in seen:
            raise ConfigError(
                f"{where} holds one binlog twice: {seen[key].name} and {file.name}.",
                hint="Move one of them away, or name the files you mean.",
            )
        seen[key] = file


RANGE_BYTES: Final = 8 << 20
"""Bytes of a partition: some 50 ms of decoding and half a second of Spark's work."""


@dataclass(frozen=True)
class FileAccess:
    """File and its keys.

    Attributes:
        file_key: the file with the password of an encrypted `key_file`.
    """

    path: str
    key_file: str | None = None
    file_key: str | None = None
    skip_damaged: bool = False

    def open(self) -> BinlogFile:
        """Open the file on this machine. Errors are those of `open_binlog` and of key files."""
        from replica.readers.files.binlog import open_binlog

        return open_binlog(self.path, self._keys())

    def _keys(self) -> KeyRing | None:
        from replica.readers.files.encryption import KeyRing

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
    """Whole groups, bytes [start, end) of the file.

    Attributes:
        description: the format description of the groups' events.
    """

    start: int
    end: int
    description: FormatDescriptionEvent
    catalog: Catalog
    carried: tuple[PreparedInFile, ...] = ()
    extent: GroupExtent | None = None


class Piece(NamedTuple):
    """Bytes to decode, and the metadata for decoding them."""

    data: memoryview
    offset: int  # of the first byte in the file
    checksum: bool
    catalog: Catalog
    carried: Sequence[CarriedGroup]


@dataclass(frozen=True)
class FilePartition(InputPartition):
    """Part of one file that a task reads.

    Attributes:
        stretches: stretches of the file, in its order.
    """

    access: FileAccess
    stretches: tuple[Stretch, ...]

    @property
    def file(self) -> str:
        """Name of the file on the primary."""
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
