"""Places in the relay log, and the names of its files.

A `RelayLocation` is the number of a relay file and an offset in it; locations order as the stream does. The end of one
file and the first group of the next are two locations of one place: code that compares places compares GTID positions.
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
    """A place. `file` is the number in relay.NNNNNN, counted from 1 without gaps; `offset` is in bytes, 0 before its
    head.
    """

    file: int
    offset: int

    def __str__(self) -> str:
        return f"relay.{self.file:06d}:{self.offset}"


class RelayHead(NamedTuple):
    """Everything up to here is complete: the location, and where that is for MariaDB and for a clock (seconds, UTC)."""

    location: RelayLocation
    position: GtidPosition
    primary: BinlogPosition
    timestamp: int


def relay_path(directory: Path, number: int) -> Path:
    return directory / f"relay.{number:06d}"


def index_path(directory: Path, number: int) -> Path:
    return directory / f"relay.{number:06d}.idx"


def relay_number(path: Path) -> int:
    """Return the number of a relay file."""
    return int(path.suffix[1:])


def relay_numbers(directory: Path) -> list[int]:
    """Return numbers of the relay files present, ascending."""
    matches = map(_NAME.fullmatch, os.listdir(directory))  # noqa: PTH208  (a Path for each of ten thousand takes longer than the rest)
    return sorted(int(match[1]) for match in matches if match)
