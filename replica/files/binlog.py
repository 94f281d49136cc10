"""A binlog file as a sequence of ranges: whole event groups, checked, in pieces of a few megabytes.

In: a window (window.py) at the file's first byte. Out: `FileRange`s in the file's order, without a gap unless damage
is skipped; together they hold every event. Ranges end where no group is open; a group larger than a range is a range
of its own. Events that decoders refuse (INCIDENT, unknown types) and their group get a range of their own, so that
everything before them can be delivered. A group without its end at the end of the file (the server crashed, or is
writing it) is the last range, with `whole` False.

Refused, after everything before it was delivered: an event that does not match its checksum, that cannot be as long as
it says, or that the file's end cuts; events of a group outside of any (files from before GTIDs: MariaDB 5 and MySQL
5.5 have no others). With `skip_damaged` the damaged group is dropped and reading goes on at the next one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Self

from replica.errors import ConfigError, ProtocolError, TruncatedError
from replica.files.ranges import FileRange, Walk, relocated
from replica.protocol.constants import BINLOG_MAGIC, FIRST_POSITION, HEADER_LENGTH
from replica.protocol.events.decode import FormatDescriptionEvent, decode_description
from replica.protocol.header import HEADER, EventHeader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.files.damage import Damage
    from replica.files.readers import FileReader
    from replica.files.window import Window

__all__ = ["RANGE_BYTES", "BinlogFile", "FileRange"]

RANGE_BYTES: Final = 8 << 20
MAX_DESCRIPTION_BYTES: Final = 4096
"""A FORMAT_DESCRIPTION event has a byte for each event type, of which there cannot be more than 255."""


class BinlogFile:
    """An open file; `open_binlog` makes it. Use it as a context manager, or `close` it."""

    def __init__(
        self, name: str, descriptor: int, window: Window, *, source: FileReader, size: int | None, seekable: bool
    ) -> None:
        self.name = name
        self.seekable = seekable
        """Whether ranges can be taken more than once and from any group's start: a plain file on disk."""
        self.damage: list[Damage] = []
        """What `skip_damaged` has left out so far."""
        self._descriptor = descriptor
        self._window = window
        self._source = source
        self._size = size
        self._used = False
        self.description = self._read_description()
        """The file's first event."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; ranges that were given out stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def size(self) -> int | None:
        """Bytes on disk, or None where that cannot be known (a pipe)."""
        return self._size

    @property
    def consumed(self) -> int:
        """Bytes on disk that were read so far; of a seekable file see the offsets of its ranges."""
        return self._source.consumed

    def ranges(
        self,
        *,
        max_bytes: int = RANGE_BYTES,
        skip_damaged: bool = False,
        cut_at_ddl: bool = False,
        verify: bool = True,
        start: int = FIRST_POSITION,
        stop: int | None = None,
        description: FormatDescriptionEvent | None = None,
    ) -> Iterator[FileRange]:
        """Yield all ranges in order, of at most `max_bytes` unless one group is larger.

        `cut_at_ddl`: each group with a DDL statement is a range of its own. `verify` False: checksums are not compared
        (for a caller that only looks for places to cut). `start`, `stop` and `description` read a part of a seekable
        file: offsets between two ranges of an earlier run, and the description that came with the range at `start`.
        """
        if not self.seekable and (self._used or start != FIRST_POSITION or stop is not None):
            raise ConfigError(
                f"{self.name} can be read once, from its beginning: it is a stream, compressed, or encrypted."
            )
        self._used = True
        walk = Walk(
            self.name,
            self._window,
            description or self.description,
            start=start,
            stop=stop,
            max_bytes=max_bytes,
            cut_at_ddl=cut_at_ddl,
            verify=verify,
        )
        return walk.ranges(self.damage if skip_damaged else None)

    def _read_description(self) -> FormatDescriptionEvent:
        start = FIRST_POSITION + HEADER_LENGTH
        self._need(start)
        if bytes(self._window.view(0, FIRST_POSITION)) != BINLOG_MAGIC:
            raise ProtocolError(f"{self.name}: what is compressed in it is no binlog file", offset=0)
        header = EventHeader._make(HEADER.unpack(self._window.view(FIRST_POSITION, start)))
        end = FIRST_POSITION + header.event_length
        if not HEADER_LENGTH < header.event_length <= MAX_DESCRIPTION_BYTES:
            raise ProtocolError(
                f"{self.name}: begins with an event of {header.event_length} bytes, which is no FORMAT_DESCRIPTION",
                offset=FIRST_POSITION,
            )
        self._need(end)
        try:
            return decode_description(self._window.view(FIRST_POSITION, end))
        except ProtocolError as error:
            raise relocated(error, self.name, FIRST_POSITION) from None

    def _need(self, end: int) -> None:
        while self._window.end < end:
            if not self._window.more(0):
                raise self._window.fault or TruncatedError(
                    f"{self.name}: the file ends before its first event does, after {self._window.end} bytes",
                    offset=min(self._window.end, FIRST_POSITION),
                    hint="The server crashed when it made the file, or the copy is incomplete.",
                )
