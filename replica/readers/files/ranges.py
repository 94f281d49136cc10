"""Walk over a file: the kernel finds the ends of groups, and this module cuts ranges and skips damage on request.

`Walk.ranges` yields `FileRange`s from a window. The window starts between groups, with the FORMAT_DESCRIPTION that
applies at its start. binlog.py describes the errors, and the ranges that are delivered before an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import ChecksumError, ProtocolError, TruncatedError, UnsupportedEventError
from replica.native.arrays import address
from replica.native.compiling.ahead import COMPILING
from replica.native.kernel_group import NO_GROUP
from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, MAX_EVENT_BYTES, event_name
from replica.protocol.events.decode import FormatDescriptionEvent, decode_description
from replica.protocol.header import HEADER, EventHeader
from replica.readers.files import kernel_groups as k
from replica.readers.files.kernel_groups import MAX_START_BYTES, find_start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.readers.files.readers import Window


class Damage(NamedTuple):
    """Skipped bytes of the file, which are in no range: the damaged group, up to the next readable group."""

    offset: int
    """File offset of the damaged event."""
    begin: int
    """File offset of the damaged group's first event."""
    end: int
    """File offset at which reading continued, or the end of the file."""
    events: int
    """Whole events of the damaged group before the damage, which were dropped with it."""
    error: ProtocolError

    @property
    def size(self) -> int:
        """Bytes skipped."""
        return self.end - self.begin


MAX_DAMAGES: Final = 1000
"""Number of damaged parts after which reading ends with the error: such a file is no longer a binlog."""
_UNLIMITED: Final = 1 << 62
_DAMAGED: Final = "The file was damaged after it was written: copy it again from the server, or skip the damage."


class FileRange(NamedTuple):
    """Whole events, decrypted, of whole groups (unless `whole` is False)."""

    data: memoryview
    offset: int
    """Offset of data[0] in the decompressed file."""
    checksum: bool
    """Whether each event has a CRC32; a FORMAT_DESCRIPTION event inside declares what follows."""
    description: FormatDescriptionEvent
    """Description in force at the first event, or that event itself if it is one."""
    whole: bool
    """False if the last group has no end. Its events can be listed, but the file has no commit of its rows."""

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Walk:
    """One pass over a window."""

    def __init__(
        self,
        name: str,
        window: Window,
        description: FormatDescriptionEvent,
        *,
        start: int,
        stop: int | None,
        max_bytes: int,
        cut_at_ddl: bool,
        verify: bool,
    ) -> None:
        self._name = name
        self._window = window
        self._stop = _UNLIMITED if stop is None else stop
        self._max_bytes = max_bytes
        self._description = self._current = description
        self._current_at = start
        self._state = np.zeros((), k.WalkState.dtype)
        self._address = address(self._state)
        self._set("trailer", CHECKSUM_LENGTH if description.checksum else 0)
        self._set("verify", int(verify))
        self._set("cut_at_ddl", int(cut_at_ddl))
        self._begin_at(start)

    def ranges(self, damage: list[Damage] | None) -> Iterator[FileRange]:
        """Yield all ranges up to the first damage, and raise it.

        With `damage`, yield all ranges of the file; the list receives the skipped parts.
        """
        while True:
            stopped, error = self._go_on()
            yield from self._cut()
            if not stopped:
                continue
            resume = self._search() if error is not None and damage is not None else None
            if resume is None:
                yield from self._open_group()
            if error is None:
                return
            if damage is None or len(damage) == MAX_DAMAGES:
                raise error
            at, cut = self._get("cursor"), self._get("cut")
            if resume is None:
                damage.append(Damage(at, at, self._end, 0, error))
                return
            damage.append(Damage(at, cut, resume, self._get("group_events"), error))
            self._begin_at(resume)

    def _go_on(self) -> tuple[bool, ProtocolError | None]:
        """Walk to the end of a range, to the end of the file, or to damage.

        Returns:
            Whether the walk is over, and its error. (False, None) at the end of a range, (True, None) at the end of the
            file, (True, error) at damage and at a truncated end.
        """
        while True:
            reason = k.walk(self._window.base, self._end, self._address)
            if reason == k.REACHED:
                return False, None
            error = None
            if reason == k.NEED_BYTES:
                if self._window.end >= self._stop or not self._window.more(self._get("start")):
                    return True, self._end_error()
            elif reason == k.DESCRIPTION:
                error = self._pass_description()
            else:
                error = self._error(reason)
            if error is not None:
                return True, error

    @property
    def _most_bytes(self) -> int:
        """Maximal bytes of the next range: few while kernels are interpreted, so that its rows come soon."""
        return COMPILING.most_bytes(self._max_bytes)

    @property
    def _end(self) -> int:
        return min(self._window.end, self._stop)

    def _get(self, field: str) -> int:
        return int(self._state[field])

    def _set(self, field: str, value: int) -> None:
        self._state[field] = value

    def _begin_at(self, offset: int) -> None:
        self._description = self._current
        for field in ("cursor", "start", "cut"):
            self._set(field, offset)
        self._set("target", offset + self._most_bytes)
        for field in ("group", "apart", "group_events"):
            self._set(field, 0)

    def _cut(self) -> Iterator[FileRange]:
        begin, end = self._get("start"), self._get("cut")
        if end > begin:
            yield self._range(begin, end, whole=True)
        self._set("start", end)
        self._set("target", end + self._most_bytes)
        if self._current_at < end:
            self._description = self._current

    def _open_group(self) -> Iterator[FileRange]:
        begin, end = self._get("cut"), self._get("cursor")
        if end > begin:
            yield self._range(begin, end, whole=False)

    def _range(self, begin: int, end: int, *, whole: bool) -> FileRange:
        description = self._description
        return FileRange(self._window.view(begin, end), begin, bool(description.checksum), description, whole)

    def _pass_description(self) -> ProtocolError | None:
        """Apply the FORMAT_DESCRIPTION event at the cursor."""
        cursor = self._get("cursor")
        end = cursor + self._header().event_length
        try:
            self._current = decode_description(self._window.view(cursor, end))
        except ProtocolError as error:
            return relocated(error, self._name, cursor - (error.offset or 0))
        self._current_at = cursor
        if cursor == self._get("start"):
            self._description = self._current
        self._set("trailer", CHECKSUM_LENGTH if self._current.checksum else 0)
        self._set("cursor", end)
        self._set("group_events", self._get("group_events") + 1)
        if self._get("group") == NO_GROUP:
            self._set("cut", end)
            self._set("group_events", 0)
        return None

    def _search(self) -> int | None:
        """Return the next offset after the damage at which reading can continue."""
        offset = self._get("cursor") + 1
        while True:
            found = find_start(self._window.base, offset, self._end, self._get("trailer"), self._get("aligned"))
            if found >= 0:
                return found
            offset = max(offset, self._end - MAX_START_BYTES)
            if self._window.end >= self._stop or not self._window.more(min(offset, self._get("cut"))):
                return None

    def _header(self) -> EventHeader:
        cursor = self._get("cursor")
        return EventHeader._make(HEADER.unpack(self._window.view(cursor, cursor + HEADER_LENGTH)))

    def _error(self, reason: int) -> ProtocolError:
        offset, header = self._get("cursor"), self._header()
        event = f"{self._name}: {event_name(header.event_type)} event"
        if reason == k.BAD_CHECKSUM:
            return ChecksumError(
                f"{event} does not match its checksum",
                offset=offset,
                hint=_DAMAGED,
            )
        if reason == k.BAD_LENGTH:
            return ProtocolError(
                f"{event} claims {header.event_length} bytes; an event has {self._least_bytes} to {MAX_EVENT_BYTES}",
                offset=offset,
                hint=_DAMAGED,
            )
        if reason == k.NO_EVENT:
            return ProtocolError(
                f"{self._name}: bytes that are not an event (unknown type {header.event_type} at a wrong position)",
                offset=offset,
                hint=_DAMAGED,
            )
        if reason == k.ENCRYPTION:
            return UnsupportedEventError(f"{event} not at the start of the file", offset=offset)
        if reason == k.OUTSIDE:
            return UnsupportedEventError(
                f"{event} outside of any event group",
                offset=offset,
                hint="The start of its transaction is missing, or a server without GTIDs wrote the file.",
            )
        return ProtocolError(f"{event} is too short for a GTID", offset=offset)

    @property
    def _least_bytes(self) -> int:
        return HEADER_LENGTH + self._get("trailer")

    def _end_error(self) -> ProtocolError | None:
        """Return the error at the end of the file, None if there is none."""
        if self._window.fault is not None:
            return self._window.fault
        cursor, end = self._get("cursor"), self._end
        if cursor == end:
            return None
        left = end - cursor
        if left < HEADER_LENGTH:
            return TruncatedError(f"{self._name}: the file ends after {left} bytes of an event", offset=cursor)
        header = self._header()
        return TruncatedError(
            f"{self._name}: {event_name(header.event_type)} event of {header.event_length} bytes, "
            f"but only {left} are left in the file",
            offset=cursor,
            hint="The server crashed or is writing it, or the copy is incomplete.",
        )


def relocated(error: ProtocolError, name: str, offset: int) -> ProtocolError:
    """Make the same error with the file's name, and with its offset counted from the file's start."""
    message = error.placeless
    return type(error)(f"{name}: {message}", offset=offset + (error.offset or 0), hint=error.hint)
