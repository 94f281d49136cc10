"""Last group of a relay log, which a primary must have too: its last event, or its fingerprint."""

from __future__ import annotations

import contextlib
import os
from functools import lru_cache
from typing import TYPE_CHECKING, BinaryIO

from replica.protocol.constants import HEADER_LENGTH
from replica.protocol.events.decode import GtidEvent, decode, decode_description
from replica.protocol.groups.fingerprint import LONGEST_EVENT, Fingerprint, FingerprintBuilder
from replica.protocol.header import parse_header
from replica.relay_log.files.lookup import purged, read_file_head
from replica.relay_log.location import RelayLocation, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.relay_log.log import RelayLog


def last_event(log: RelayLog, end: RelayLocation) -> bytes | None:
    """Return the last event of the group that ends at `end`, a group end; None before the first group."""
    if not end.offset or (place := log.group_end(end)) is None:
        return None
    end = place
    with _purge_reported(end):
        start = offset = log.last_group(end).offset
        with relay_path(log.directory, end.file).open("rb") as file:
            while offset < end.offset:
                start = offset
                offset += _length(file, start)
            return os.pread(file.fileno(), end.offset - start, start)


def fingerprint_at(log: RelayLog, end: RelayLocation) -> Fingerprint | None:
    """Return the fingerprint of the group that ends at `end`, equal on every server; None before the first group."""
    if not end.offset or (place := log.group_end(end)) is None:
        return None
    end = place
    with _purge_reported(end):
        with relay_path(log.directory, end.file).open("rb") as file:
            last = os.pread(file.fileno(), HEADER_LENGTH, end.offset - HEADER_LENGTH)
        return _fingerprint(log, last, end)


@contextlib.contextmanager
def _purge_reported(end: RelayLocation) -> Iterator[None]:
    """Raise a DataLossError if the file was removed meanwhile."""
    try:
        yield
    except FileNotFoundError:
        raise purged(end.file) from None


@lru_cache(maxsize=16)
def _fingerprint(log: RelayLog, _last: bytes, end: RelayLocation) -> Fingerprint | None:
    # A query asks for the same few locations at every trigger, and written groups never change. The last bytes of the
    # group (transaction number and checksum) distinguish it from a group of a log that was created again.
    path = relay_path(log.directory, end.file)
    description = decode_description(read_file_head(path).format)
    offset = log.last_group(end).offset
    with path.open("rb") as file:
        length = _length(file, offset)
        first = decode(os.pread(file.fileno(), length, offset), description)
        if not isinstance(first, GtidEvent):
            return None
        builder = FingerprintBuilder(first.gtid)
        while (offset := offset + length) < end.offset and not builder.done:
            length = _length(file, offset)
            builder.feed(os.pread(file.fileno(), min(length, LONGEST_EVENT), offset), description)
    return builder.result()


def _length(file: BinaryIO, offset: int) -> int:
    return parse_header(memoryview(os.pread(file.fileno(), HEADER_LENGTH, offset))).event_length
