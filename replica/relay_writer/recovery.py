"""The recovery of a relay directory after a crash: complete, checked groups without a gap, and nothing else.

Files whose sidecar ends with a sealed entry were on disk as a whole when that was written. The others, at the end of
the log, are walked with every checksum: the first thing that is not a whole group ends the log there; the rest of that
file is cut off and later files are removed (the primary sends those groups again). Every file that stays is sealed.
"""

from __future__ import annotations

import os
import re
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import RelayError
from replica.protocol.gtid import merged
from replica.relay_log.directory.access import protect
from replica.relay_log.directory.disk import sync_directory, write_all
from replica.relay_log.directory.head import Snapshot
from replica.relay_log.files.file_head import read_file_head
from replica.relay_log.files.index import (
    SEALED_FLAG,
    IndexEntry,
    encode_entry,
    encode_header,
    last_entry,
    plain_entries,
)
from replica.relay_log.files.removal import remove_files
from replica.relay_log.files.scan import ScannedFile, scan_file
from replica.relay_log.groups.order import LogOrder, read_order
from replica.relay_log.kernels.kernel_group_end import UNORDERED_FLAG, XA_FLAG
from replica.relay_log.location import index_path, relay_path

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition

_RELAY = re.compile(r"relay\.(\d{6,})")
_INDEX = re.compile(r"relay\.(\d{6,})\.idx")
_TEMPORARY = re.compile(r"relay\.\d{6,}(\.idx)?\.new")
_PIECE_BYTES = 1 << 20


class Recovered(NamedTuple):
    """The end of the log, or None where no group is left; the next file's number; how many bytes were cut off.

    `position` is that of the end; without a group, where the log began, if the head of a file tells that.
    `order`: where sequence numbers went back, as `relay.order` and the files that are marked tell.
    """

    snapshot: Snapshot | None
    position: GtidPosition | None
    next_file: int
    cut_bytes: int
    order: LogOrder


def recover(directory: Path) -> Recovered:
    """Bring the directory into order; the caller holds its lock. An OSError is raised as the disk does."""
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
            hint="Someone else writes into the relay log: leave its folder to one replica, then start again.",
        )
    head = read_file_head(relay_path(directory, number))
    snapshot = Snapshot(number, entry.end, head.primary.file, entry.primary_position, entry.timestamp, entry.domains)
    return Recovered(snapshot, entry.position, number + 1, cut, _order(directory, numbers[:first], numbers[first:keep]))


def _order(directory: Path, sealed: list[int], walked: list[int]) -> LogOrder:
    """Return where numbers may have gone back: in what was walked just now, and in older files as `relay.order` tells,
    unless it is lost.

    A sealed file whose last entry says that the whole log was plain until then answers for all files before it.
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
    """Refuse a log with holes: a sealed file tells that all before it were on disk, so where one is missing, it was
    removed from outside.
    """
    for before, after in pairwise(numbers):
        if after > before + 1:
            missing = relay_path(directory, before + 1).name
            last = f" to {relay_path(directory, after - 1).name}" if after > before + 2 else ""
            raise RelayError(
                f"{missing}{last} is missing in {directory}, files before and after it are there.",
                hint=f"Put it back. If everything before {relay_path(directory, after).name} has been read, move those "
                "files away instead: the log then begins there.",
            )


def _beginning(directory: Path, numbers: list[int]) -> GtidPosition | None:
    """Read the position before the oldest file's first group; None without files, and where its head is torn."""
    if not numbers:
        return None
    try:
        return read_file_head(relay_path(directory, numbers[0])).position
    except RelayError:
        return None


def _sealed_entry(directory: Path, number: int) -> IndexEntry | None:
    """Read the last entry of a sealed file that is as long as the entry says."""
    entry = last_entry(index_path(directory, number))
    if entry is None:
        return None  # missing or unreadable: made again from the file
    return entry if relay_path(directory, number).stat().st_size == entry.end else None


def _recover_file(directory: Path, number: int, *, follows: int | None) -> tuple[bool, int]:
    """Recover a file, cut to its complete groups and sealed; return whether it stays, and how many bytes it lost."""
    path = relay_path(directory, number)
    size = path.stat().st_size
    try:
        head = read_file_head(path)
    except RelayError:
        return False, 0  # torn while its head was written: it holds no group
    if follows is not None:
        before = _sealed_entry(directory, follows)
        if before is None or before.position != head.position:
            return False, 0  # the groups between were lost with the end of the file before
    scanned = scan_file(path, head)
    if scanned.groups == 0:
        return False, 0
    _rewrite(path, scanned.end)
    _write_sidecar(directory, number, scanned)
    return True, size - scanned.end


def _remake_index(directory: Path, number: int) -> None:
    """Make the sidecar of a file before a sealed one: it was complete, so it must still be."""
    path = relay_path(directory, number)
    scanned = scan_file(path, read_file_head(path))
    if scanned.end != path.stat().st_size:
        raise RelayError(
            f"{path} is damaged: from offset {scanned.end} on there are no complete event groups.",
            hint="Groups after it are intact: remove this file and the ones before it if they have been consumed.",
        )
    _write_sidecar(directory, number, scanned)


def _rewrite(path: Path, end: int) -> None:
    """Cut a file to `end` and make the rest durable, by writing it again.

    After a failed write-back the system holds pages in memory that are not on disk and counts them as clean: a sync
    alone would not write them. What is read here has been checked.
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
    """Tell whether all files before are plain; their sidecars are in order."""
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
    """Remove what was left half done; return the numbers of the relay files, ascending, and those with a sidecar."""
    names = os.listdir(directory)  # noqa: PTH208  (names are all that is wanted of ten thousand files)
    numbers = {int(match[1]) for name in names if (match := _RELAY.fullmatch(name))}
    indexed = set()
    for name in names:
        match = _INDEX.fullmatch(name)
        if match and int(match[1]) in numbers:
            indexed.add(int(match[1]))
        elif match or _TEMPORARY.fullmatch(name):
            (directory / name).unlink()
    return sorted(numbers), indexed
