"""Recovery of a relay directory after a crash: it keeps only complete, checked groups without a gap.

A sealing entry in a file's index proves that the whole file was on disk. All files after the last sealed one are
scanned with every checksum. The first incomplete group ends the log: the rest of its file is cut off, and later files
are removed. The primary sends those groups again. Every remaining file is sealed.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import RelayError
from replica.protocol.gtid import merged
from replica.relay_log.directory.disk import protect, sync_directory, write_all
from replica.relay_log.directory.head import Snapshot
from replica.relay_log.files.index import (
    SEALED_FLAG,
    IndexEntry,
    encode_entry,
    encode_header,
    last_entry,
    plain_entries,
)
from replica.relay_log.files.lookup import read_file_head, remove_files
from replica.relay_log.files.scan import ScannedFile, scan_file
from replica.relay_log.groups.order import LogOrder, read_order
from replica.relay_log.kernels.kernel_deframe import UNORDERED_FLAG, XA_FLAG
from replica.relay_log.location import index_path, relay_path

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition

_RELAY = re.compile(r"relay\.(\d{6,})")
_INDEX = re.compile(r"relay\.(\d{6,})\.idx")
_TEMPORARY = re.compile(r"relay\.\d{6,}(\.idx)?\.new")
_PIECE_BYTES = 1 << 20


class Recovered(NamedTuple):
    """Result of a recovery.

    Attributes:
        snapshot: End of the log; None if no group is left.
        position: Position of the end. Without a group, the log's start position if a file head has it, else None.
        next_file: Number of the next file.
        cut_bytes: Number of bytes that were cut off.
        order: Where sequence numbers went back, from `relay.order` and the marked files.
    """

    snapshot: Snapshot | None
    position: GtidPosition | None
    next_file: int
    cut_bytes: int
    order: LogOrder


def recover(directory: Path) -> Recovered:
    """Recover the directory; the caller holds its lock. OSErrors are passed on."""
    numbers, indexed = _tidy(directory)
    began = _beginning(directory, numbers)
    first = len(numbers)
    while first and _sealed_entry(directory, numbers[first - 1]) is None:
        first -= 1
    _refuse_holes(directory, numbers[:first])
    for number in numbers[:first]:
        if number not in indexed:
            _remake_index(directory, number)
    cut = 0
    keep = first
    for number in numbers[first:]:
        kept, lost = _recover_file(directory, number, follows=numbers[keep - 1] if keep else None)
        cut += lost
        if not kept:
            break
        keep += 1
        if lost:
            break
    cut += sum(relay_path(directory, number).stat().st_size for number in numbers[keep:])
    remove_files(directory, reversed(numbers[keep:]))
    sync_directory(directory)
    if not keep:
        return Recovered(None, began, numbers[0] if numbers else 1, cut, read_order(directory))
    number = numbers[keep - 1]
    entry = _sealed_entry(directory, number)
    if entry is None:
        raise RelayError(
            f"{relay_path(directory, number)} changed while it was recovered.",
            hint="Another program writes into the relay log. Leave its folder to one replica, then start again.",
        )
    head = read_file_head(relay_path(directory, number))
    snapshot = Snapshot(number, entry.end, head.primary.file, entry.primary_position, entry.timestamp, entry.domains)
    return Recovered(snapshot, entry.position, number + 1, cut, _order(directory, numbers[:first], numbers[first:keep]))


def _order(directory: Path, sealed: list[int], walked: list[int]) -> LogOrder:
    """Return where numbers may have gone back: in scanned files, and in older files as recorded in `relay.order`.

    If `relay.order` is lost, older files are checked too, newest first. The check ends at a sealed file whose index
    says that the whole log up to the file is plain.
    """
    order = read_order(directory)
    suspected = walked if order.highest else [*sealed, *walked]
    for number in reversed(suspected):
        entry = last_entry(index_path(directory, number))
        if entry is not None and entry.plain_log:
            break
        if entry is not None and entry.unordered:
            path = relay_path(directory, number)
            order = order._replace(highest=merged(order.highest, scan_file(path, read_file_head(path)).highest))
    return order


def _refuse_holes(directory: Path, numbers: list[int]) -> None:
    """Refuse a log with missing files.

    A sealed file proves that all earlier files existed. Retention removes only the oldest files, so a gap means that
    someone else removed files.
    """
    for before, after in pairwise(numbers):
        if after > before + 1:
            missing = relay_path(directory, before + 1).name
            last = f" to {relay_path(directory, after - 1).name}" if after > before + 2 else ""
            raise RelayError(
                f"{missing}{last} is missing in {directory}, but files before and after it are there.",
                hint=f"Put it back. If everything before {relay_path(directory, after).name} has been read, move those "
                "files away instead: the log then begins there.",
            )


def _beginning(directory: Path, numbers: list[int]) -> GtidPosition | None:
    """Return the position before the oldest file's first group; None without files, or if the head is torn."""
    if not numbers:
        return None
    try:
        return read_file_head(relay_path(directory, numbers[0])).position
    except RelayError:
        return None


def _sealed_entry(directory: Path, number: int) -> IndexEntry | None:
    """Return the last entry of a sealed file if the file has the recorded length."""
    entry = last_entry(index_path(directory, number))
    if entry is None:
        return None  # the index is missing or unreadable, and is created again from the file
    return entry if relay_path(directory, number).stat().st_size == entry.end else None


def _recover_file(directory: Path, number: int, *, follows: int | None) -> tuple[bool, int]:
    """Cut a file to its complete groups and seal it; return whether it stays, and how many bytes were cut off."""
    path = relay_path(directory, number)
    size = path.stat().st_size
    try:
        head = read_file_head(path)
    except RelayError:
        return False, 0  # the head is torn, so the file has no group
    if follows is not None:
        before = _sealed_entry(directory, follows)
        if before is None or before.position != head.position:
            return False, 0  # the groups in between were lost with the end of the previous file
    scanned = scan_file(path, head)
    if scanned.groups == 0:
        return False, 0
    _rewrite(path, scanned.end)
    _write_sidecar(directory, number, scanned)
    return True, size - scanned.end


def _remake_index(directory: Path, number: int) -> None:
    """Create the index of a file before a sealed one, which must be complete."""
    path = relay_path(directory, number)
    scanned = scan_file(path, read_file_head(path))
    if scanned.end != path.stat().st_size:
        raise RelayError(
            f"{path} is damaged: from offset {scanned.end} on there are no complete event groups.",
            hint="Groups after it are intact: remove this file and the ones before it if they have been consumed.",
        )
    _write_sidecar(directory, number, scanned)


def _rewrite(path: Path, end: int) -> None:
    """Cut a file to `end` and make the rest durable by writing it again.

    After a failed write-back, the kernel may keep pages in memory as clean that are not on disk. A sync alone would not
    write them. The bytes were checked before.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.ftruncate(descriptor, end)
        offset = 0
        while piece := os.pread(descriptor, _PIECE_BYTES, offset):
            offset += os.pwrite(descriptor, piece, offset)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _plain_before(directory: Path, number: int) -> bool:
    """Return True if all earlier files are plain, according to their index files."""
    before = last_entry(index_path(directory, number - 1))
    return before.plain_log if before else not relay_path(directory, number - 1).exists()


def _write_sidecar(directory: Path, number: int, scanned: ScannedFile) -> None:
    flags = SEALED_FLAG | (UNORDERED_FLAG if scanned.unordered else 0) | (XA_FLAG if scanned.xa else 0)
    last = IndexEntry(
        scanned.end, scanned.primary_position, scanned.timestamp, flags, scanned.last_domain, scanned.domains
    ).judged(plain=plain_entries(memoryview(scanned.entries)), before=_plain_before(directory, number))
    temporary = index_path(directory, number).with_suffix(".new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        protect(descriptor, directory)
        write_all(descriptor, encode_header() + scanned.entries + encode_entry(last))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.rename(index_path(directory, number))


def _tidy(directory: Path) -> tuple[list[int], set[int]]:
    """Remove unfinished files; return the numbers of the relay files, ascending, and of those with an index."""
    names = os.listdir(directory)  # noqa: PTH208  (only the names of up to ten thousand files are needed)
    numbers = {int(match[1]) for name in names if (match := _RELAY.fullmatch(name))}
    indexed = set()
    for name in names:
        match = _INDEX.fullmatch(name)
        if match and int(match[1]) in numbers:
            indexed.add(int(match[1]))
        elif match or _TEMPORARY.fullmatch(name):
            (directory / name).unlink()
    return sorted(numbers), indexed
