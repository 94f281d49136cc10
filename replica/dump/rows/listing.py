"""A range event by event, with the rows of each rows event behind it: what the human dump and the SQL dump go through.

In: a `Part` and the texts of its rows. Out: items in the order of the log. Rows stand behind their event; those that
come with the end of their group (an XA transaction that was prepared elsewhere) stand before the event that ends it.
Groups that are not asked for are left out, and so are events between groups unless everything is asked for.

What rows cannot be decoded from (INCIDENT, an unknown event, a damaged image) is raised after all events and rows that
stand before it.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from replica.dump.rows.feed import Chunk, RowFeed
from replica.errors import ProtocolError
from replica.files.ranges import relocated
from replica.protocol.constants import CHECKSUM_LENGTH
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.rows.rows_event import RowsEvent

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.dump.rows.rows_text import RowTexts
    from replica.log_reader.part import Part
    from replica.protocol.events.binlog_file import FileEvent
    from replica.protocol.header import Event
    from replica.row_reader.reading import Reading


class ItemKind(Enum):
    OUTSIDE = "outside"  # of every group
    BEGIN = "begin"
    MEMBER = "member"
    END = "end"
    ROWS = "rows"  # not an event: rows of the event before
    CUT = "cut"  # not an event: the group has no end


class Item(NamedTuple):
    """One item of the list. `event` unless `kind` is ROWS or CUT, `chunk` only then."""

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
        visible = reading.visible(part)  # only now: the feed may have found groups that cannot be read
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
    """Yield an event with the rows that belong before or behind it."""
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
