"""Locations in the relay log, and the names of its files.

A `RelayLocation` is the number of a relay file and an offset in it. Locations sort in stream order. The end of one file
and the first group of the next are two locations of one place. Code that compares places must therefore compare GTID
positions.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.gtid import BinlogPosition, GtidPosition

_NAME = re.compile(r"relay\.(\d{6,})")


class RelayLocation(NamedTuple):
    """Location in the relay log.

    `file` is the number in relay.NNNNNN, from 1 without gaps. `offset` is in bytes, 0 before the file head.
    """

    file: int
    offset: int

    def __str__(self) -> str:
        return f"relay.{self.file:06d}:{self.offset}"


class RelayHead(NamedTuple):
    """Complete end of the log: its location, GTID position, place in the primary's binlog and commit time.

    The commit time is in seconds since 1970 (UTC).
    """

    location: RelayLocation
    position: GtidPosition
    primary: BinlogPosition
    timestamp: int


def relay_path(directory: Path, number: int) -> Path:
    return directory / f"relay.{number:06d}"


def index_path(directory: Path, number: int) -> Path:
    return directory / f"relay.{number:06d}.idx"


def relay_number(path: Path) -> int:
    return int(path.suffix[1:])


def relay_numbers(directory: Path) -> list[int]:
    """Return the numbers of the existing relay files, ascending."""
    matches = map(_NAME.fullmatch, os.listdir(directory))  # noqa: PTH208  (a Path for each of ten thousand takes longer than the rest)
    return sorted(int(match[1]) for match in matches if match)
