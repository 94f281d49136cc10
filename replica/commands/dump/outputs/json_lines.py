"""Outputs of `dump --events` and `dump --json`: one JSON object a line.

Text is shown as text, other bytes as {"hex": …}. Row images and payloads are shown by their size, because --json shows
their rows. Fields that the server did not log are left out. Events of transactions that are not selected are left out,
and with a selection so are events between transactions.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Literal

from replica.commands.dump.rows.kernel_text import JSON
from replica.commands.dump.rows.rows_text import (
    AFTER,
    BEFORE,
    ColumnText,
    Program,
    RangeOrigin,
    RowTexts,
    Side,
    shown_columns,
)
from replica.commands.dump.text import as_json, json_line, type_name, utc, xa_words
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
from replica.protocol.rows.table_map import ColumnDef
from replica.readers.rows.reading import statement_text
from replica.readers.rows.without_rows import parts_with_notice
from replica.rows.scan import records as r

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.protocol.events.binlog_file import FileEvent
    from replica.readers.log.reader import Part
    from replica.readers.rows.reading import Reading
    from replica.rows.decode.slots import CompiledTable

_LARGE = frozenset({"images", "payload", "content"})
"""Fields that are shown by their size, because other outputs show their content."""


def write_events(reading: Reading, out: BinaryIO) -> None:
    """Write one JSON object per event to `out`, for `dump --events`."""
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
    """Return an event of the part as values that JSON can represent."""
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


# {"gtid":"0-1-7","ordinal":0,"commit_time":"2026-11-21 13:00:00","file":"bin.000001","position":4711,"op":"update",
# "database":"d","table":"t","before":{"id":1,"n":"x"},"after":{"id":1,"n":null}}
#
# `position` is the start of the transaction in the file; times are UTC. A column that is not in the image is absent,
# and NULL is null. Integers beyond 2^53, DECIMAL, dates and times are text as SELECT prints them with time_zone
# '+00:00'. Bytes are {"hex":"00FF"}. FLOAT and DOUBLE are numbers with the fewest digits that give the same value.
# VECTOR is an array. In rows of system-versioned tables, `history` says whether the row is an old version.


Image = Literal["both", "before", "after"]
OPERATIONS: Final = {r.OP_INSERT: "insert", r.OP_UPDATE: "update", r.OP_DELETE: "delete"}
_IMAGES: Final = {r.OP_INSERT: (AFTER,), r.OP_UPDATE: (BEFORE, AFTER), r.OP_DELETE: (BEFORE,)}
_NAMES: Final = {BEFORE: "before", AFTER: "after"}


def program(table: CompiledTable, image: Image, *, unnamed: bool) -> Program:
    """Return the templates of one table. `image` selects the images that are written."""
    shown = shown_columns(table, unnamed=unnamed)
    columns = [ColumnText(one, f"{as_json(one.plan.name)}:") for one in shown]
    made = Program()
    for op, word in OPERATIONS.items():
        text = f',"op":"{word}","database":{as_json(table.name.database)},"table":{as_json(table.name.table)}'
        sides = []
        for side, name in _NAMES.items():
            if image not in ("both", name):
                continue
            if side in _IMAGES[op]:
                sides.append(Side(side, f'{text},"{name}":{{', ",", "}", columns))
                text = ""
            elif sides:
                sides[-1] = sides[-1].ending(f',"{name}":null')
            else:
                text += f',"{name}":null'
        if sides:
            sides[-1] = sides[-1].ending(f"{text}}}\n")
        else:
            sides = [Side(_IMAGES[op][0], f"{text}}}\n", "", "", [])]
        made.add(len(shown), sides)
    return made


def write_json_rows(reading: Reading, out: BinaryIO, *, image: Image = "both") -> None:
    """Write one JSON object per row to `out`, for `dump --json`. `image` selects the written images."""
    texts = RowTexts(JSON, lambda table: program(table, image, unnamed=reading.names.is_unnamed(table.table_map)))
    for part in parts_with_notice(reading):
        place = RangeOrigin(part.name, part.piece.offset)
        out.writelines(
            texts.write(batch, place, shown=shown, gtids=gtids).data for batch, shown, gtids in reading.rows(part)
        )
