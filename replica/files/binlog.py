"""Binlog file as a sequence of ranges: checked, whole event groups in pieces of a few megabytes.

`BinlogFile.ranges` yields `FileRange`s in the file's order, without a gap unless damage is skipped; together they have
every event. A range ends at the end of a group; a larger group gets its own range. Events that decoders refuse
(INCIDENT, unknown types) get their own range with their group, so that everything before them can be delivered. A group
without its end at the end of the file (the server crashed, or is writing) is the last range, with `whole` False.

Errors are raised after everything before them was delivered. They are a wrong checksum, an impossible length, a
truncated event, and an event of a group outside of any group. Files from before GTIDs (MariaDB 5 and MySQL 5.5) have
only such events. With `skip_damaged` the damaged group is dropped, and reading continues at the next one.
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
"""Maximal size of a FORMAT_DESCRIPTION event, which has a byte for each of at most 255 event types."""


class BinlogFile:
    """An open file; `open_binlog` makes it. Use it as a context manager, or `close` it."""

    def __init__(
        self, name: str, descriptor: int, window: Window, *, source: FileReader, size: int | None, seekable: bool
    ) -> None:
        self.name = name
        self.seekable = seekable
        """Whether ranges can be read repeatedly, and from any group's start: True for a plain file on disk."""
        self.damage: list[Damage] = []
        """Damage that `skip_damaged` has skipped so far."""
        self._descriptor = descriptor
        self._window = window
        self._source = source
        self._size = size
        self._used = False
        self.description = self._read_description()
        """First event of the file."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; its ranges stay valid."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def size(self) -> int | None:
        """Bytes on disk, or None if unknown (a pipe)."""
        return self._size

    @property
    def consumed(self) -> int:
        """Bytes on disk read so far; for a seekable file, use the offsets of its ranges."""
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
        """Yield all ranges in order.

        `start`, `stop` and `description` select a part of a seekable file.

        Args:
            max_bytes: Maximal bytes of a range; a larger group gets its own range.
            skip_damaged: True to skip damaged groups, which `damage` lists.
            cut_at_ddl: True to make each group with a DDL statement its own range.
            verify: False to skip the checksums, for callers that only search for places to cut.
            start: Offset of the first range: the end of a range of an earlier run.
            stop: Offset at which to stop: the end of a range of an earlier run.
            description: The description of the range at `start`.

        Raises:
            ConfigError: A stream, a compressed or an encrypted file can be read only once, from its beginning.
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
            raise ProtocolError(f"{self.name}: the compressed content is not a binlog file", offset=0)
        header = EventHeader._make(HEADER.unpack(self._window.view(FIRST_POSITION, start)))
        end = FIRST_POSITION + header.event_length
        if not HEADER_LENGTH < header.event_length <= MAX_DESCRIPTION_BYTES:
            raise ProtocolError(
                f"{self.name}: begins with an event of {header.event_length} bytes, which is not a FORMAT_DESCRIPTION",
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
                    f"{self.name}: the file ends inside its first event, after {self._window.end} bytes",
                    offset=min(self._window.end, FIRST_POSITION),
                    hint="The server crashed while it created the file, or the copy is incomplete.",
                )
