"""Output of `dump --events`: one JSON object for each event, with its place, its header and its decoded fields.

Text is shown as text, other bytes as {"hex": …}. Row images and payloads are shown by their size, because --json shows
their rows. Fields that the server did not log are left out. Events of transactions that are not selected are left out,
and with a selection so are events between transactions.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, BinaryIO

from replica.dump.event_words import type_name, utc, xa_words
from replica.dump.json_text import json_line
from replica.protocol.constants import CHECKSUM_LENGTH, ColumnType
from replica.protocol.events.decode import (
    AnnotateRowsEvent,
    Event,
    ExecuteLoadQueryEvent,
    LoadBlockEvent,
    QueryEvent,
    RowsQueryEvent,
    StatusVars,
    XaId,
)
from replica.protocol.groups.groups import GroupTracker, Place
from replica.protocol.gtid import Gtid
from replica.protocol.rows.column_def import ColumnDef
from replica.row_reader.statement_text import statement_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.log_reader.part import Part
    from replica.protocol.events.binlog_file import FileEvent
    from replica.row_reader.reading import Reading

_LARGE = frozenset({"images", "payload", "content"})
"""Fields that are shown by their size, because other outputs show their content."""


def write_events(reading: Reading, out: BinaryIO) -> None:
    for part in reading.parts():
        visible = reading.visible(part)
        tracker = GroupTracker()
        shown = visible is None
        for found in part.walk():
            content = found.event[: len(found.event) - (CHECKSUM_LENGTH if found.description.checksum else 0)]
            place = tracker.feed(found.header, content)
            if visible is not None and place is Place.BEGIN:
                shown = found.offset - part.piece.offset in visible
            if visible is None or (shown and place is not Place.OUTSIDE):
                out.write(json_line(event_object(part, found)))


def event_object(part: Part, found: FileEvent) -> Mapping[str, Any]:
    """Return an event as plain values."""
    header = found.header
    return {
        "file": part.name,
        "offset": found.offset,
        "end": found.end,
        "type": type_name(header.event_type),
        "code": header.event_type,
        "timestamp": header.timestamp,
        "time": utc(header.timestamp),
        "server_id": header.server_id,
        "log_pos": header.log_pos,
        "flags": header.flags,
        "fields": fields(part.read(found)),
    }


def fields(event: Event) -> dict[str, Any]:
    """Return the decoded fields by name, without those that were not logged."""
    found: dict[str, Any] = {}
    status = getattr(event, "status", None)
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name == "header" or value is None:
            continue
        if field.name in _LARGE:
            found[f"{field.name}_bytes"] = len(value)
        elif field.name == "query" and isinstance(
            event, QueryEvent | ExecuteLoadQueryEvent | AnnotateRowsEvent | RowsQueryEvent
        ):
            found["query"] = statement_text(value, status if isinstance(status, StatusVars) else None)
        elif isinstance(event, LoadBlockEvent) and field.name == "data":
            found["data"] = plain(bytes(value))
        else:
            found[field.name] = plain(value)
    return found


def plain(value: object) -> object:  # noqa: PLR0911  (one return for each kind)
    """Return a value as JSON can represent it."""
    match value:
        case None | bool() | str() | float():
            return value
        case Gtid():
            return str(value)
        case XaId():
            return xa_words(value)
        case int():
            return int(value)
        case bytes() | memoryview():
            return {"hex": value.hex().upper()}
        case ColumnDef():
            return _column(value)
        case tuple() | list():
            return [plain(one) for one in value]
    if dataclasses.is_dataclass(value):
        pairs = ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {name: plain(one) for name, one in pairs if one is not None}
    return str(value)


def _column(column: ColumnDef) -> dict[str, object]:
    found: dict[str, object] = {"type": ColumnType(column.type).name, "metadata": column.metadata.hex().upper()}
    for field in dataclasses.fields(column):
        value = getattr(column, field.name)
        if field.name not in ("type", "metadata") and value != field.default and value is not None:
            found[field.name] = plain(value)
    return found
