"""The files of batches: rows of tables as of one position, as events, with a manifest by which a restart finds them.

In: the frontiers that a batch lies between, its position, and its tables' blocks in order. Out: `SpoolPart`s, which
tasks read as parts of the relay log. A batch is on disk, whole and durable, before its parts are told: the file, then
the manifest under its last name, then the folder. A manifest that is damaged, or of another batch, counts as none, and
so does a file that is not what the manifest says: the rows are read again.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

from replica.native.kernel_checksum import checksum
from replica.relay_log.disk import sync_directory
from replica.table_reader.rows_events import begin_events, end_event, end_statement, rows_events
from replica.table_reader.spool import FILE_MODE, spool_error, write_file

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition
    from replica.schema.known_tables import TableName
    from replica.table_reader.chunk import RowBlock
    from replica.table_reader.frontier import Frontier
    from replica.table_reader.rows_events import LastTransaction, WrittenRows
    from replica.table_reader.spool import Spool

PART_BYTES: Final = 16 << 20
"""The bytes of one part: a task's work of a fraction of a second."""
PART_MAPS: Final = 64
"""The table maps of one part, which its head repeats: rows that the stream changed bring the stream's own."""
VERSION: Final = 1
MOST_MANIFEST_BYTES: Final = 64 << 20
"""A part is some 300 bytes in it; what is larger is not ours."""


class SpoolPart(NamedTuple):
    """Rows of one table: bytes [start, end) of a file, whole events, which stand between `head` and `tail`.

    `first_row` is the number of the first one among all rows of the snapshot.
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
    """The name of a batch of rows: its frontiers, and the position that its rows hold at."""

    before: Frontier
    after: Frontier
    position: GtidPosition

    @property
    def stem(self) -> str:
        """The name of its files."""
        text = json.dumps([self.before.json(), self.after.json(), str(self.position)], sort_keys=True)
        return f"batch-{self.before.rows:012x}-{self.after.rows:012x}-{crc32(text.encode()):08x}"


class BatchWriter:
    """The writer of one batch: tables in their order, then `finish`; or `abandon`.

    Raises, in every method: DiskFullError or RelayError where the folder takes no more.
    """

    def __init__(self, spool: Spool, first_row: int, transaction: LastTransaction) -> None:
        self._spool = spool
        self._transaction = transaction
        self._first_row = self._row = first_row
        self._path = spool.folder / f"batch-{first_row:012x}.rows.new"
        self._parts: list[SpoolPart] = []
        self._at = self._reserved = 0
        self._sum = 0
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
            self._file = os.fdopen(os.open(self._path, flags, FILE_MODE), "wb")
        except OSError as error:
            raise spool_error(spool.folder, error) from error

    @property
    def rows(self) -> int:
        """The rows written so far."""
        return self._row - self._first_row

    @property
    def size(self) -> int:
        """The bytes written so far."""
        return self._at

    def write(self, table: TableName, blocks: Iterable[RowBlock]) -> None:
        """Write blocks of a table behind what there is."""
        part = _OpenPart(table, self._at, self._row, {})
        for block in blocks:
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

    def finish(self, name: BatchName) -> list[SpoolPart]:
        """Make it durable under its name, and return its parts."""
        folder = self._spool.folder
        path, manifest = folder / f"{name.stem}.rows", folder / f"{name.stem}.json"
        parts = [part._replace(path=path) for part in self._parts]
        text = _manifest(name, parts, self._at, self._sum)
        self._spool.reserve(len(text))
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            new = folder / f"{name.stem}.json.new"
            write_file(new, [text], durable=True)
            self._path.rename(path)
            new.rename(manifest)
            sync_directory(folder)
        except OSError as error:
            raise spool_error(folder, error) from error
        self._spool.give_back(self._reserved - self._at)  # events have heads, which were not counted
        self._spool.finished.add(name.stem)
        return parts

    def abandon(self) -> None:
        """Remove what was written; this may be called twice."""
        self._file.close()
        self._path.unlink(missing_ok=True)
        self._spool.give_back(self._reserved)
        self._reserved = 0

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
        self._parts.append(SpoolPart(self._path, part.start, self._at, head, tail, part.first_row, rows, part.table))


class _OpenPart:
    """A part that is being written. `ids`: the table ids of its maps, by their bodies; `last`: id and width of the map
    of its last event.
    """

    def __init__(self, table: TableName, start: int, first_row: int, ids: dict[bytes, int]) -> None:
        self.table = table
        self.start = start
        self.first_row = first_row
        self.ids = ids
        self.last = (0, 0)


def find_batch(folder: Path, name: BatchName, *, ours: bool = False) -> list[SpoolPart] | None:
    """Find a batch that was finished; None where it is not there as it was.

    `ours`: this process finished it, so that its size is enough: an earlier one may have ended with the machine.
    """
    path, manifest = folder / f"{name.stem}.rows", folder / f"{name.stem}.json"
    try:
        if manifest.stat().st_size > MOST_MANIFEST_BYTES:
            return None
        found = json.loads(manifest.read_bytes())
        if found["check"] != _check(found["batch"]):
            return None
        batch = found["batch"]
        if batch["version"] != VERSION or [batch["before"], batch["after"], batch["position"]] != _told(name):
            return None
        if path.stat().st_size != batch["size"] or not (ours or _sum_of(path) == batch["sum"]):
            return None
        return [_part(path, part) for part in batch["parts"]]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def remove_up_to(spool: Spool, rows: int | None) -> None:
    """Remove the files of all batches that end at or before this number of rows; None: of all."""
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


def _told(name: BatchName) -> list[Any]:
    return [name.before.json(), name.after.json(), str(name.position)]


def _manifest(name: BatchName, parts: list[SpoolPart], size: int, checksum: int) -> bytes:
    before, after, position = _told(name)
    batch = {
        "version": VERSION,
        "before": before,
        "after": after,
        "position": position,
        "size": size,
        "sum": checksum,
        "parts": [
            [part.start, part.end, part.head.hex(), part.tail.hex(), part.first_row, part.rows, *part.table]
            for part in parts
        ],
    }
    return json.dumps({"batch": batch, "check": _check(batch)}).encode()


def _check(batch: object) -> int:
    return crc32(json.dumps(batch, sort_keys=True).encode())


def _part(path: Path, told: list[Any]) -> SpoolPart:
    start, end, head, tail, first_row, rows, database, table = told
    return SpoolPart(path, start, end, bytes.fromhex(head), bytes.fromhex(tail), first_row, rows, (database, table))


def _sum_of(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            found = checksum(data, found)
    return found
