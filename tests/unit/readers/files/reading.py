"""Files of a few kilobytes, what is to be found in them, and what `open_binlog` makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from replica.errors import ProtocolError
from replica.protocol.constants import BINLOG_MAGIC, CHECKSUM_LENGTH, ChecksumAlgorithm
from replica.protocol.events.binlog_file import walk
from replica.protocol.groups.groups import GroupTracker, Place
from replica.readers.files.binlog import open_binlog
from tests.vectors.load import HERE, raw_events

if TYPE_CHECKING:
    from pathlib import Path

    from replica.readers.files.ranges import Damage, FileRange

TRANSACTIONS = (HERE / "11.8" / "transactions.binlog").read_bytes()
"""Groups of every shape, with checksums."""
UNCHECKED = (HERE / "11.8" / "minimal_image.binlog").read_bytes()
"""Without checksums."""
DESCRIPTION = raw_events("11.8", "transactions")[0]


class Unit(NamedTuple):
    """What a range cannot be smaller than: a group, or an event outside of groups."""

    start: int
    end: int


def units(data: bytes) -> list[Unit]:
    """By the plain Python rule of event groups."""
    found: list[Unit] = []
    tracker = GroupTracker()
    start: int | None = None
    for event in walk(data):
        trailer = CHECKSUM_LENGTH if event.description.checksum else 0
        place = tracker.feed(event.header, event.event[: len(event.event) - trailer])
        if start is None:
            start = event.offset
        if not tracker.is_open and place in (Place.OUTSIDE, Place.END):
            found.append(Unit(start, event.end))
            start = None
    if start is not None:
        found.append(Unit(start, len(data)))
    return found


@dataclass
class Read:
    """Everything up to the error."""

    ranges: list[FileRange] = field(default_factory=list)
    error: ProtocolError | None = None
    damage: list[Damage] = field(default_factory=list)

    @property
    def data(self) -> bytes:
        return b"".join(part.data for part in self.ranges)

    @property
    def places(self) -> list[Unit]:
        return [Unit(part.offset, part.end) for part in self.ranges]

    @property
    def whole(self) -> list[bool]:
        return [part.whole for part in self.ranges]


def read(path: Path, *, keys: Any = None, **options: Any) -> Read:
    result = Read()
    try:
        with open_binlog(path, keys) as file:
            result.damage = file.damage
            for part in file.ranges(**options):
                result.ranges.append(part)
    except ProtocolError as error:
        result.error = error
    return result


def read_bytes(folder: Path, data: bytes, **options: Any) -> Read:
    path = folder / "file"
    path.unlink(missing_ok=True)  # ext4 flushes what is truncated and written again
    path.write_bytes(data)
    return read(path, **options)


def as_file(events: list[bytes], description: bytes = DESCRIPTION) -> bytes:
    return BINLOG_MAGIC + description + b"".join(events)


CRC32, NONE = ChecksumAlgorithm.CRC32, ChecksumAlgorithm.NONE
