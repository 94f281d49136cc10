"""Files of a batch: snapshot rows at one position, encoded as events, with a manifest for restarts.

`BatchWriter` turns a batch's blocks into `SpoolPart`s, which tasks read like parts of the relay log. Blocks in memory
become events in the batch's own file. A block that waited in a file keeps this file: its images stay in place, and its
parts contain the surrounding event bytes.

A batch is complete and durable before its parts are returned. The order is: files, manifest under its final name,
directory sync. A damaged manifest, a manifest of another batch and a file that differs from its manifest count as
missing. Then the rows are read again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from replica.native.crc32 import checksum
from replica.relay_log.directory.disk import sync_directory
from replica.snapshot.spool.events import begin_events, end_event, end_statement, rows_events, rows_head
from replica.snapshot.spool.spool import FILE_MODE, STRETCH_BYTES, StoredBlock, spool_error, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition
    from replica.schema.known_tables import TableName
    from replica.snapshot.frontier import Frontier
    from replica.snapshot.rows.row_block import RowBlock
    from replica.snapshot.spool.events import LastTransaction, WrittenRows
    from replica.snapshot.spool.spool import Spool, StoredImages

PART_BYTES: Final = STRETCH_BYTES
"""Bytes of one part, in any file."""
PART_MAPS: Final = 64
"""Maximum number of table maps in one part, whose head repeats them. Rows changed by the stream have the stream's own
maps.
"""
VERSION: Final = 2
MOST_MANIFEST_BYTES: Final = 64 << 20
"""Maximum size of a manifest, in which a part takes about 300 bytes; a larger file is not a manifest."""


class SpoolPart(NamedTuple):
    """Rows of one table: bytes [start, end) of a file, which become whole events between `head` and `tail`.

    `first_row` is the number of the first row among all rows of the snapshot.
    """

    path: Path
    start: int
    end: int
    head: bytes
    tail: bytes
    first_row: int
    rows: int
    table: TableName


class BatchName(NamedTuple):
    """Identity of a batch of rows: its two frontiers and the position at which its rows hold."""

    before: Frontier
    after: Frontier
    position: GtidPosition

    @property
    def stem(self) -> str:
        """Base name of the batch's files."""
        text = json.dumps([self.before.json(), self.after.json(), str(self.position)], sort_keys=True)
        return f"batch-{self.before.rows:012x}-{self.after.rows:012x}-{crc32(text.encode()):08x}"


class BatchWriter:
    """Writer of one batch. Call `write` for each table in order, then `finish` or `abandon`.

    Every method raises DiskFullError or RelayError if the folder is not writable.
    """

    def __init__(self, spool: Spool, first_row: int, transaction: LastTransaction) -> None:
        self._spool = spool
        self._transaction = transaction
        self._first_row = self._row = first_row
        self._path = spool.folder / f"batch-{first_row:012x}.rows.new"
        self._parts: list[_PartOfFile] = []
        self._taken: list[tuple[StoredBlock, StoredImages]] = []
        self._at = self._reserved = 0
        self._sum = 0
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, FILE_MODE), "wb")
        except OSError as error:
            raise spool_error(spool.folder, error) from error

    @property
    def rows(self) -> int:
        """Number of rows written."""
        return self._row - self._first_row

    @property
    def size(self) -> int:
        """Bytes of the written rows."""
        return self._at + sum(images.size for _, images in self._taken)

    def write(self, table: TableName, blocks: Iterable[RowBlock | StoredBlock]) -> None:
        """Append blocks of a table; the file of a `StoredBlock` must be taken."""
        part = _OpenPart(table, self._at, self._row, {})
        for block in blocks:
            if isinstance(block, StoredBlock):
                self._close(part)
                self._take(table, block)
                part = _OpenPart(table, self._at, self._row, {})
                continue
            size = int(block.ends[-1]) if block.rows else 0
            self._spool.reserve(size)
            self._reserved += size
            if len(part.ids) >= PART_MAPS:
                self._close(part)
                part = _OpenPart(table, self._at, self._row, {})
            table_id = part.ids.setdefault(block.table_map, len(part.ids) + 1)
            for event in rows_events(block, table_id, self._transaction):
                if self._at - part.start >= PART_BYTES:
                    self._close(part)
                    part = _OpenPart(table, self._at, self._row, part.ids)
                self._write(event)
                part.last = table_id, block.width
        self._close(part)

    def finish(self, name: BatchName, *, complete: bool = True) -> list[SpoolPart]:
        """Make the batch durable under its name and return its parts.

        Args:
            name: Identity of the batch.
            complete: False if tables are left out. The batch then has no manifest, so `find_batch` does not find it
                after a restart.
        """
        folder = self._spool.folder
        paths = [_path(folder, name, number) for number in range(1 + len(self._taken))]
        text = _manifest(name, self._files(), self._parts) if complete else b""
        self._spool.reserve(len(text))
        self._reserved += len(text)
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            for stored, _ in self._taken:
                stored.sync()
            new = folder / f"{name.stem}.json.new"
            if complete:
                write_file(new, [text], durable=True)
            self._path.rename(paths[0])
            for (stored, _), path in zip(self._taken, paths[1:], strict=True):
                stored.move(path)
            if complete:
                new.rename(folder / f"{name.stem}.json")
            sync_directory(folder)
        except OSError as error:
            raise spool_error(folder, error) from error
        for stored, _ in self._taken:
            stored.hand_over()
        self._spool.give_back(self._reserved - self._at - len(text))  # event heads were not reserved
        if complete:
            self._spool.finished.add(name.stem)
        return [part._replace(path=paths[number]) for number, part in self._parts]

    def abandon(self) -> None:
        """Remove the written file and release the taken files; a second call has no effect."""
        for stored, _ in self._taken:
            stored.return_file()
        self._taken.clear()
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._spool.give_back(self._reserved)
        self._reserved = 0

    def _files(self) -> list[_BatchFile]:
        own = _BatchFile(self._at, 0, self._at, self._sum)
        taken = [_BatchFile(stored.size, one.start, one.start + one.size, one.sum) for stored, one in self._taken]
        return [own, *taken]

    def _take(self, table: TableName, stored: StoredBlock) -> None:
        """Create parts over the file of a block."""
        images = stored.images
        if images is None:
            raise ValueError("it has no file")
        self._taken.append((stored, images))
        begin = begin_events(self._transaction, [images.table_map])
        tail = end_statement(1, images.width, self._transaction) + end_event(self._transaction)
        for start, end, rows in images.stretches:
            head = begin + rows_head(1, images.width, end - start, self._transaction, left_out=images.left_out)
            start, end = images.start + start, images.start + end  # noqa: PLW2901  (offsets in the file)
            part = SpoolPart(self._path, start, end, head, tail, self._row, rows, table)
            self._parts.append(_PartOfFile(len(self._taken), part))
            self._row += rows

    def _write(self, event: WrittenRows) -> None:
        try:
            self._file.write(event.head)
            self._file.write(event.images)
        except OSError as error:
            raise spool_error(self._spool.folder, error) from error
        self._sum = checksum(event.images, crc32(event.head, self._sum))
        self._at += event.size
        self._row += event.rows

    def _close(self, part: _OpenPart) -> None:
        if self._at == part.start:
            return
        head = begin_events(self._transaction, list(part.ids))
        tail = end_statement(*part.last, self._transaction) + end_event(self._transaction)
        rows = self._row - part.first_row
        made = SpoolPart(self._path, part.start, self._at, head, tail, part.first_row, rows, part.table)
        self._parts.append(_PartOfFile(0, made))


class _PartOfFile(NamedTuple):
    """Part and the number of its file in the batch; the batch's own file is 0."""

    file: int
    part: SpoolPart


class _BatchFile(NamedTuple):
    """File of a batch: its size, and the bytes [start, end) that contain rows, with their checksum."""

    size: int
    start: int
    end: int
    sum: int

    def holds(self, path: Path, *, by_size: bool) -> bool:
        """Return True if a file matches this record; raises OSError if the file does not exist."""
        if path.stat().st_size != self.size:
            return False
        return by_size or _sum_of(path, self.start, self.end) == self.sum


class _OpenPart:
    """Part that is being written.

    Attributes:
        ids: Table id of each table map, by the map's body.
        last: Table id and width of the last event's table map.
    """

    def __init__(self, table: TableName, start: int, first_row: int, ids: dict[bytes, int]) -> None:
        self.table = table
        self.start = start
        self.first_row = first_row
        self.ids = ids
        self.last = (0, 0)


def find_batch(folder: Path, name: BatchName, *, ours: bool = False) -> list[SpoolPart] | None:
    """Return the parts of a finished batch; None if it is missing or damaged.

    Args:
        folder: Spool folder.
        name: Identity of the batch.
        ours: Whether this process finished the batch. Then the file sizes are sufficient proof. After a crash of the
            machine, the content of an earlier process's files may be damaged.
    """
    manifest = folder / f"{name.stem}.json"
    try:
        if manifest.stat().st_size > MOST_MANIFEST_BYTES:
            return None
        found = json.loads(manifest.read_bytes())
        if found["check"] != _check(found["batch"]):
            return None
        batch = found["batch"]
        if batch["version"] != VERSION or [batch["before"], batch["after"], batch["position"]] != _identity(name):
            return None
        files = [(_path(folder, name, number), _BatchFile(*file)) for number, file in enumerate(batch["files"])]
        if not all(file.holds(path, by_size=ours) for path, file in files):
            return None
        return [_part([path for path, _ in files], part) for part in batch["parts"]]
    except (OSError, ValueError, KeyError, TypeError, IndexError):
        return None


def remove_up_to(spool: Spool, rows: int | None) -> None:
    """Remove the files of all batches that end at or before row number `rows`; None removes all batches."""
    try:
        names = [path for path in spool.folder.iterdir() if path.name.startswith("batch-")]
    except OSError:
        return
    for path in names:
        numbers = path.stem.split("-")
        if len(numbers) != _NAME_PARTS or path.suffix not in (".rows", ".json"):
            continue
        try:
            end = int(numbers[2], 16)
        except ValueError:
            continue
        if rows is None or end <= rows:
            spool.finished.discard(path.stem)
            spool.remove(path)


_NAME_PARTS: Final = 4


def _identity(name: BatchName) -> list[Any]:
    return [name.before.json(), name.after.json(), str(name.position)]


def _path(folder: Path, name: BatchName, number: int) -> Path:
    """Return the path of a batch's file."""
    return folder / (f"{name.stem}.{number}.rows" if number else f"{name.stem}.rows")


def _manifest(name: BatchName, files: list[_BatchFile], parts: list[_PartOfFile]) -> bytes:
    before, after, position = _identity(name)
    batch = {
        "version": VERSION,
        "before": before,
        "after": after,
        "position": position,
        "files": files,
        "parts": [
            [file, part.start, part.end, part.head.hex(), part.tail.hex(), part.first_row, part.rows, *part.table]
            for file, part in parts
        ],
    }
    return json.dumps({"batch": batch, "check": _check(batch)}).encode()


def _check(batch: object) -> int:
    return crc32(json.dumps(batch, sort_keys=True).encode())


def _part(paths: list[Path], fields: list[Any]) -> SpoolPart:
    file, start, end, head, tail, first_row, rows, database, table = fields
    return SpoolPart(
        paths[file], start, end, bytes.fromhex(head), bytes.fromhex(tail), first_row, rows, (database, table)
    )


def _sum_of(path: Path, start: int, end: int) -> int:
    found = 0
    with path.open("rb") as file:
        file.seek(start)
        while data := file.read(min(1 << 20, end - file.tell())):
            found = checksum(data, found)
    return found
