"""Events of a range with the rows of each rows event, for the human dump and the SQL dump.

In: a `Part` and the texts of its rows. Out: items in the order of the log. Rows follow their event. The rows of an XA
transaction that was prepared elsewhere precede the event that ends the group. Groups that are not selected are left
out, and so are events between groups unless everything is selected.

An event whose rows cannot be decoded (INCIDENT, an unknown event, a damaged image) raises an error after all events and
rows before it.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from replica.commands.dump.rows.rows_text import RangeOrigin
from replica.errors import ProtocolError
from replica.protocol.constants import CHECKSUM_LENGTH
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.rows.rows_event import RowsEvent
from replica.readers.files.ranges import relocated

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.commands.dump.rows.rows_text import RowTexts
    from replica.protocol.events.binlog_file import FileEvent
    from replica.protocol.header import Event
    from replica.readers.log.reader import Part
    from replica.readers.rows.reading import Reading, ShownRows


class ItemKind(Enum):
    """Kind of an item: the place of an event in its group, or an item that is no event."""

    OUTSIDE = "outside"  # outside of every group
    BEGIN = "begin"
    MEMBER = "member"
    END = "end"
    ROWS = "rows"  # not an event: rows of the event before
    CUT = "cut"  # not an event: the group has no end


class Item(NamedTuple):
    """One item of the list. It has a `chunk` if `kind` is ROWS, nothing if it is CUT, and else an `event`."""

    kind: ItemKind
    found: FileEvent
    event: Event | None = None
    chunk: Chunk | None = None


_KINDS = {
    Place.OUTSIDE: ItemKind.OUTSIDE,
    Place.BEGIN: ItemKind.BEGIN,
    Place.MEMBER: ItemKind.MEMBER,
    Place.END: ItemKind.END,
}


def listing(reading: Reading, part: Part, texts: RowTexts) -> Iterator[Item]:
    """Yield all items of a range."""
    feed, visible, failure = None, None, None
    try:
        feed = RowFeed(part, reading.rows(part), texts)
        visible = reading.visible(part)  # only now, because the feed may have found groups that cannot be read
    except ProtocolError as error:
        failure = error
    tracker = GroupTracker()
    group, shown = -1, reading.selection.everything
    for found in part.walk():
        place = _place(tracker, part, found)
        if place is Place.BEGIN:
            group = found.offset - part.piece.offset
            shown = visible is None or group in visible
        if shown if place is not Place.OUTSIDE else reading.selection.everything:
            yield from _items(part, found, _KINDS[place], group, feed)
        if feed is not None and feed.failure is not None and feed.fails_at(found):
            raise feed.failure
    if feed is not None and failure is None:
        failure = feed.failure
    if failure is not None:
        raise failure
    if tracker.is_open and shown:
        yield Item(ItemKind.CUT, found)


def _items(part: Part, found: FileEvent, kind: ItemKind, group: int, feed: RowFeed | None) -> Iterator[Item]:
    """Yield an event, with its rows before or after it."""
    event = part.read(found)
    if kind is ItemKind.END and feed is not None:
        yield from (Item(ItemKind.ROWS, found, chunk=chunk) for chunk in feed.take(group))
    yield Item(kind, found, event)
    if isinstance(event, RowsEvent) and feed is not None:
        rows = feed.take(group, found.offset - part.piece.offset)
        yield from (Item(ItemKind.ROWS, found, chunk=chunk) for chunk in rows)


def _place(tracker: GroupTracker, part: Part, found: FileEvent) -> Place:
    content = found.event[: len(found.event) - (CHECKSUM_LENGTH if found.description.checksum else 0)]
    try:
        return tracker.feed(found.header, content)
    except ProtocolError as error:
        raise relocated(error, part.name, found.offset) from None


# Texts of a range's rows, by event, for the code that lists the events.


class Chunk(NamedTuple):
    """Rows of one rows event in one batch. `text` is valid until the next chunk is requested."""

    group: int
    """Offset in the range of the group that commits the rows."""
    event: int
    """Offset in the range of the rows event."""
    rows: int
    text: memoryview


class RowFeed:
    """Texts of a range. Rows come in the order of the log, those of an XA transaction at its commit.

    `failure` is the error that ends the texts. The error is known before the preceding events are listed.
    """

    def __init__(self, part: Part, rows: Iterator[ShownRows], texts: RowTexts) -> None:
        self.failure: ProtocolError | None = None
        self._chunks = _chunks(part, rows, texts)
        self._next: Chunk | None = None
        self._go_on()

    def fails_at(self, found: FileEvent) -> bool:
        """Return True if the event is the one whose rows cannot be read."""
        offset = None if self.failure is None else self.failure.offset
        return offset is not None and found.offset <= offset < found.offset + len(found.event)

    def take(self, group: int, event: int | None = None) -> Iterator[Chunk]:
        """Yield the next chunks that belong to this group and this event (None: any event)."""
        while self._next is not None and self._next.group == group and event in (None, self._next.event):
            yield self._next
            self._go_on()

    def _go_on(self) -> None:
        try:
            self._next = next(self._chunks, None)
        except ProtocolError as error:
            self._next, self.failure = None, error


def _chunks(part: Part, rows: Iterator[ShownRows], texts: RowTexts) -> Iterator[Chunk]:
    place = RangeOrigin(part.name, part.piece.offset)
    for batch, shown, gtids in rows:
        assert batch.events is not None  # noqa: S101  (decoders of VARIANT provide them)
        assert batch.event is not None  # noqa: S101
        text, ends = texts.write(batch, place, shown=shown, gtids=gtids)
        starts = batch.events["start"][batch.event]
        groups = batch.groups.start[batch.group]
        borders = np.flatnonzero((np.diff(starts) != 0) | (np.diff(groups) != 0)) + 1
        bounds = [0, *borders.tolist(), batch.rows]
        for first, last in pairwise(bounds):
            begin, end = int(ends[first - 1]) if first else 0, int(ends[last - 1])
            if end > begin:
                yield Chunk(int(groups[first]), int(starts[first]), last - first, text[begin:end])
