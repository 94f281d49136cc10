"""Rows that ROLLBACK TO SAVEPOINT undid before their transaction ended, and which a scan must drop.

`RangeSavepoints` serves the scan of a range: it finds the savepoint that a ROLLBACK TO names among those that the
kernel recorded. `BlockSavepoints` serves a group that is scanned in blocks: it finds the spans of undone bytes in
advance. Python reads statements one by one, and only from the first ROLLBACK TO on, so savepoints alone cost nothing.

An undone span begins at a SAVEPOINT and ends with a ROLLBACK TO, and contains no valid row. Therefore a part of a group
that begins and ends after valid rows contains both statements of a span or neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.constants import CHECKSUM_LENGTH, LENGTH_AT, GtidExtraFlag
from replica.protocol.groups.savepoints import SavepointText, inside_statement, last_named, read_savepoint
from replica.rows.scan import records as s
from replica.rows.scan.kernels.kernel_search import SavepointMark, find_savepoints
from replica.rows.scan.records import SavepointRecord
from replica.rows.scan.windows import search

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from replica.native.record import Records
    from replica.rows.scan.windows import Passed

    Ints = npt.NDArray[np.int64]

FIRST_SAVEPOINTS: Final = 64
"""Initial capacity for the savepoints of one transaction; it doubles when it is full."""


class RangeSavepoints:
    """Savepoints of the open group in the scan of a range, and the rows that they undo.

    The kernel writes `records`. `fault` is the error that ended the scan: a ROLLBACK TO an unknown savepoint.
    """

    def __init__(self, buffer: npt.NDArray[np.uint8]) -> None:
        self.records = np.empty(FIRST_SAVEPOINTS, SavepointRecord.dtype)
        self.fault: ProtocolError | None = None
        self._texts = _Texts(buffer)
        self._group = -1

    def resume(self, status: int, state: Records, groups: Records) -> bool:
        """Handle a stop of the kernel because of savepoints; return True if the kernel should continue."""
        if status == s.MORE_SAVEPOINTS:
            more = np.empty(len(self.records) * 2, self.records.dtype)
            more[: len(self.records)] = self.records
            self.records = more
        elif status == s.ROLLED_BACK:
            try:
                self._undo(state, groups[int(state["groups"])])
            except ProtocolError as error:
                self.fault = error
                return False
        else:
            return False
        return True

    def _undo(self, state: Records, group: Records) -> None:
        """Drop the rows events after the savepoint, and skip the ROLLBACK TO."""
        if int(group["start"]) != self._group:
            self._group = int(group["start"])
            self._texts.forget()
        at, count = int(state["position"]), int(state["savepoints"])
        starts = self.records["start"][:count]
        accents = accents_count(int(group["extra"]))
        number = self._texts.target(at, starts, int(state["trailer"]), accents=accents)
        state["events"] = self.records["events"][number]
        state["savepoints"] = number + 1
        state["position"] = at + event_length(self._texts.buffer, at)


class BlockSavepoints:
    """Savepoints of one group that is scanned in blocks. The undone spans are found at the group's first savepoint.

    `on_progress` is called with the offset up to which the search has walked.
    """

    def __init__(self, buffer: npt.NDArray[np.uint8], *, checksum: bool, on_progress: Passed | None) -> None:
        self.records = np.empty(0, SavepointRecord.dtype)  # no capacity: the kernel stops at the first savepoint
        self._buffer = buffer
        self._checksum = checksum
        self._on_progress = on_progress
        self._undone: Undone | None = None

    def resume(self, status: int, state: Records, groups: Records) -> bool:
        """Handle a stop of the kernel because of savepoints; return True if the kernel should continue.

        Raises:
            ProtocolError: A ROLLBACK TO a savepoint that the group does not have.
        """
        if status not in (s.ROLLED_BACK, s.MORE_SAVEPOINTS):
            return False
        at = int(state["position"])
        if self._undone is None:
            accents = accents_count(int(groups[int(state["groups"])]["extra"]))
            self._undone = undone(
                self._buffer, at, checksum=self._checksum, accents=accents, on_progress=self._on_progress
            )
            self.records = np.empty(FIRST_SAVEPOINTS, SavepointRecord.dtype)
        state["savepoints"] = 0  # the undone spans are already known
        if status == s.ROLLED_BACK:
            state["position"] = at + event_length(self._buffer, at)
        return True

    def kept(self, events: Records) -> Records:
        """Return the rows events that were not undone."""
        return events if self._undone is None else self._undone.kept(events)


class _Texts:
    """The savepoint statements of one group, each parsed on first use."""

    def __init__(self, buffer: npt.NDArray[np.uint8]) -> None:
        self.buffer = buffer
        self._read: dict[int, SavepointText] = {}

    def forget(self) -> None:
        self._read.clear()

    def target(self, at: int, starts: Sequence[int] | Ints, trailer: int, *, accents: bool) -> int:
        """Return the index, in `starts`, of the savepoint that the ROLLBACK TO at offset `at` names."""

        def newest_first() -> Iterator[SavepointText]:
            for number in range(len(starts) - 1, -1, -1):
                start = int(starts[number])
                known = self._read.get(start)
                if known is None:
                    known = self._read[start] = self._text(start, trailer)
                yield known

        def inside(back: int) -> bool:
            number = len(starts) - 1 - back
            return number > 0 and inside_statement(self.buffer.data, int(starts[number - 1]), int(starts[number]))

        rollback = self._text(at, trailer)
        back = last_named(rollback, newest_first(), accents=accents, inside=inside)
        if back is None:
            raise ProtocolError(
                f"a transaction is rolled back to the savepoint {rollback.name!r}, which it does not have",
                offset=at,
                hint="It is unknown which of its rows exist: report this, with this part of the binlog.",
            )
        return len(starts) - 1 - back

    def _text(self, at: int, trailer: int) -> SavepointText:
        event = self.buffer.data[at : at + event_length(self.buffer, at) - trailer]
        try:
            return read_savepoint(event)
        except ProtocolError as error:
            raise type(error)(error.placeless, offset=at, hint=error.hint) from None


def event_length(buffer: npt.NDArray[np.uint8], at: int) -> int:
    return int.from_bytes(buffer[at + LENGTH_AT : at + LENGTH_AT + 4].tobytes(), "little")


def accents_count(extra: int) -> bool:
    """Return True if the server, by the flags of its GTID event, distinguishes names by accents: 11.5 or later."""
    return extra & GtidExtraFlag.THREAD_ID != 0


class Undone(NamedTuple):
    """Ordered, disjoint spans of bytes [start, end) whose rows were undone."""

    starts: Ints
    ends: Ints

    def kept(self, events: Records) -> Records:
        """Return the rows events outside of all spans."""
        if not len(self.starts):
            return events
        span = np.searchsorted(self.starts, events["start"], side="right") - 1
        return events[(span < 0) | (events["start"] >= self.ends[np.maximum(span, 0)])]


def undone(
    buffer: npt.NDArray[np.uint8], start: int, *, checksum: bool, accents: bool, on_progress: Passed | None = None
) -> Undone:
    """Find the undone spans of exactly one group, from the headers of its events.

    Args:
        buffer: The bytes of the group.
        start: The offset of its first savepoint.
        checksum: True if events carry a CRC32.
        accents: True if the server distinguishes names by accents.
        on_progress: Called with the offset up to which the search has walked.

    Raises:
        ProtocolError: A ROLLBACK TO a savepoint that the group does not have, or a truncated event.
    """
    marks = np.empty(FIRST_SAVEPOINTS, SavepointMark.dtype)
    trailer = CHECKSUM_LENGTH if checksum else 0

    def find(memory: int, size: int, state: int) -> int:
        return find_savepoints(memory, size, state, address(marks), len(marks))

    count = search(buffer, start, trailer, find, on_progress)
    if count > len(marks):
        marks = np.empty(count, SavepointMark.dtype)
        search(buffer, start, trailer, find, on_progress)
    texts = _Texts(buffer)
    starts: list[int] = []
    ends: list[int] = []
    spans: list[tuple[int, int]] = []
    for at, end, rolls_back in marks[:count].tolist():
        if not rolls_back:
            starts.append(at)
            ends.append(end)
            continue
        number = texts.target(at, starts, trailer, accents=accents)
        del starts[number + 1 :], ends[number + 1 :]
        while spans and spans[-1][0] >= ends[number]:
            spans.pop()
        spans.append((ends[number], at))
    begun, ended = np.array(spans, np.int64).reshape(-1, 2).T
    return Undone(begun.copy(), ended.copy())
