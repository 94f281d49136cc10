"""What a relay directory holds after a crash: complete, checked groups without a gap, and nothing else.

Files whose sidecar ends with a sealed entry were on disk as a whole when that was written. The others, at the end of
the log, are walked with every checksum: the first thing that is not a whole group ends the log there; the rest of that
file is cut off and later files are removed (the primary sends those groups again). Every file that stays is sealed.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import RelayError
from replica.relay.file_head import read_file_head
from replica.relay.head import Snapshot
from replica.relay.index import (
    SEALED_FLAG,
    FileIndex,
    IndexEntry,
    encode_entry,
    encode_header,
    sync_directory,
)
from replica.relay.kernel_deframe import UNORDERED_FLAG, XA_FLAG
from replica.relay.location import index_path, relay_numbers, relay_path
from replica.relay.scan import ScannedFile, scan_file

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition


class Recovered(NamedTuple):
    """The end of the log, or None where no file is left; the next file's number; how many bytes were cut off."""

    snapshot: Snapshot | None
    position: GtidPosition | None
    next_file: int
    cut_bytes: int


def recover(directory: Path) -> Recovered:
    """Bring the directory into order; the caller holds its lock."""
    numbers = relay_numbers(directory)
    _remove_orphans(directory, set(numbers))
    first = len(numbers)
    while first and _sealed_entry(directory, numbers[first - 1]) is None:
        first -= 1
    for number in numbers[:first]:
        if not index_path(directory, number).exists():
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
    for number in numbers[keep:]:
        with contextlib.suppress(FileNotFoundError):
            cut += relay_path(directory, number).stat().st_size
        remove_file(directory, number)
    sync_directory(directory)
    if not keep:
        return Recovered(None, None, numbers[0] if numbers else 1, cut)
    number = numbers[keep - 1]
    entry = _sealed_entry(directory, number)
    if entry is None:
        raise RelayError(f"{relay_path(directory, number)} changed while it was recovered.")
    head = read_file_head(relay_path(directory, number))
    snapshot = Snapshot(number, entry.end, head.primary.file, entry.primary_position, entry.timestamp, entry.domains)
    return Recovered(snapshot, entry.position, number + 1, cut)


def remove_file(directory: Path, number: int) -> None:
    """The relay file first: the next start removes a sidecar without a file, but walks a file without a sidecar."""
    relay_path(directory, number).unlink(missing_ok=True)
    index_path(directory, number).unlink(missing_ok=True)


def _sealed_entry(directory: Path, number: int) -> IndexEntry | None:
    """The last entry of a sealed file that is as long as the entry says."""
    index = FileIndex(index_path(directory, number))
    try:
        index.refresh()
    except RelayError:
        return None  # missing or unreadable: made again from the file
    if not index.entries or not index.entries[-1].sealed:
        return None
    entry = index.entries[-1]
    return entry if relay_path(directory, number).stat().st_size == entry.end else None


def _recover_file(directory: Path, number: int, *, follows: int | None) -> tuple[bool, int]:
    """Whether the file stays, cut to its complete groups and sealed, and how many bytes it lost."""
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
    with path.open("r+b") as file:
        file.truncate(scanned.end)
        os.fsync(file.fileno())
    _write_sidecar(directory, number, scanned)
    return True, size - scanned.end


def _remake_index(directory: Path, number: int) -> None:
    """For a file before a sealed one: it was complete, so it must still be."""
    path = relay_path(directory, number)
    scanned = scan_file(path, read_file_head(path))
    if scanned.end != path.stat().st_size:
        raise RelayError(
            f"{path} is damaged: from offset {scanned.end} on there are no complete event groups.",
            hint="Groups after it are intact: remove this file and the ones before it if they have been consumed.",
        )
    _write_sidecar(directory, number, scanned)


def _write_sidecar(directory: Path, number: int, scanned: ScannedFile) -> None:
    flags = SEALED_FLAG | (UNORDERED_FLAG if scanned.unordered else 0) | (XA_FLAG if scanned.xa else 0)
    last = IndexEntry(
        scanned.end, scanned.primary_position, scanned.timestamp, flags, scanned.last_domain, scanned.domains
    )
    temporary = index_path(directory, number).with_suffix(".new")
    with temporary.open("wb") as file:
        file.write(encode_header() + scanned.entries + encode_entry(last))
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(index_path(directory, number))


def _remove_orphans(directory: Path, numbers: set[int]) -> None:
    for entry in directory.iterdir():
        name = entry.name
        if not name.startswith("relay."):
            continue
        if name.endswith(".new") or (name.endswith(".idx") and int(name[6:-4]) not in numbers):
            entry.unlink()
