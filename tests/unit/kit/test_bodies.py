"""What the test kit writes is what servers write: the events of recorded binlogs, written again byte for byte."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING

import pytest

from replica.protocol.constants import CHECKSUM_LENGTH, HEADER_LENGTH, EventType, GtidFlag
from replica.protocol.events.binlog_file import decode_file, walk
from replica.protocol.events.decode import (
    BinlogCheckpointEvent,
    Event,
    FormatDescriptionEvent,
    GtidEvent,
    QueryEvent,
    TableMapEvent,
    XaPrepareEvent,
    XidEvent,
)
from replica.protocol.rows.table_map import parse_table_map
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import HEAD_BYTES, Primary
from tests.kit.binlog.rows import Column, bits, image, table_map
from tests.kit.places import PROJECT
from tests.kit.tree import files
from tests.vectors.load import BINLOGS, name_of, raw_events

if TYPE_CHECKING:
    from pathlib import Path

UNKNOWN_TO_10_5 = {39: 0, 40: 0, 41: 0}
"""Event types of MySQL: the one thing in which the FORMAT_DESCRIPTIONs of MariaDB differ."""


def written(event: Event, body: bytes) -> bytes | None:
    """The body of the same event as the kit writes it; None for an event that it has no function for."""
    made: bytes | None = None
    match event:
        case FormatDescriptionEvent():
            lengths = UNKNOWN_TO_10_5 if event.server_version.startswith("10.5") else None
            made = bodies.format_description(
                event.checksum, server=event.server_version, created=event.created, lengths=lengths
            )
        case GtidEvent():
            rest = b"" if event.commit_id is None else struct.pack("<Q", event.commit_id)
            rest += b"" if event.xa is None else bodies.xa_fields(event.xa)
            if event.flags_extra:
                rest += body[13 + len(rest) :]
            made = bodies.gtid(event.gtid.seq_no, event.gtid.domain_id, event.flags2, rest)
        case QueryEvent(compressed=False):
            (length,) = struct.unpack_from("<H", body, 11)
            made = bodies.query(
                event.query,
                event.database.encode(),
                thread=event.thread_id,
                seconds=event.exec_time,
                error=event.error,
                status=body[13 : 13 + length],
            )
        case XidEvent():
            made = bodies.xid(event.xid)
        case XaPrepareEvent():
            made = bodies.xa_prepare(event.xa, one_phase=event.one_phase)
        case BinlogCheckpointEvent():
            made = bodies.checkpoint(event.file)
    return made


@pytest.mark.parametrize("path", BINLOGS, ids=name_of)
def test_events_are_written_as_servers_write_them(path: Path) -> None:
    seen = set()
    description: FormatDescriptionEvent | None = None
    for found, event in decode_file(path.read_bytes()):
        if isinstance(event, FormatDescriptionEvent):
            description = event
        assert description is not None
        trailer = CHECKSUM_LENGTH if description.checksum or event is description else 0
        body = bytes(found.event[HEADER_LENGTH : len(found.event) - trailer])
        made = written(event, body)
        if made is not None:
            assert made == body, event
            seen.add(type(event))
    assert seen >= {FormatDescriptionEvent, BinlogCheckpointEvent}


@pytest.mark.parametrize("version", ["10.5", "10.11", "11.8"])
def test_xa_ids_are_written_as_servers_write_them_in_all_three_places(version: str) -> None:
    data = b"".join(raw_events(version, "transactions"))
    events = [event for _, event in decode_file(b"\xfebin" + data)]
    prepared = [event.xa for event in events if isinstance(event, XaPrepareEvent)]
    marked = [event for event in events if isinstance(event, GtidEvent) and event.flags2 & GtidFlag.PREPARED_XA]
    texts = [event.query for event in events if isinstance(event, QueryEvent)]
    assert prepared
    assert [event.xa for event in marked] == prepared
    for xa in prepared:
        assert b"XA END " + bodies.xa_text(xa) in texts


def test_a_table_map_says_what_its_columns_say() -> None:
    columns = [
        Column("id", 3, unsigned=True, nullable=False),
        Column("name", 15, b"\xff\x00", collation=8),
        Column("kind", 254, b"\xf7\x01", labels=(b"a", b"b")),
    ]
    event = parse_table_map(table_map(7, columns, table="orders", database="shop"))
    assert isinstance(event, TableMapEvent)
    assert (event.table_id, event.database, event.table) == (7, "shop", "orders")
    assert [(c.name, c.type, c.unsigned, c.nullable) for c in event.columns] == [
        ("id", 3, True, False),
        ("name", 15, None, True),
        ("kind", event.columns[2].type, None, True),
    ]
    assert (event.columns[1].collation, event.columns[2].labels) == (8, (b"a", b"b"))


def test_unused_bits_of_a_row_are_set_as_servers_set_them() -> None:
    assert bits([True]) == b"\xff"
    assert bits([True, False, True] + [False] * 5) == b"\5"
    assert image([None, b"x"]) == b"\xfdx"


@pytest.mark.parametrize("checksum", [True, False])
def test_a_file_has_each_event_where_its_header_says_it_ends(*, checksum: bool) -> None:
    primary = Primary(checksum=checksum)
    primary.transaction()
    primary.statement(None)
    primary.xa_prepare("x")
    primary.xa_end("x", compressed=True)
    primary.checkpoint()
    found = list(walk(primary.binlog()))
    assert found[0].end == HEAD_BYTES
    assert [place.header.log_pos for place in found] == [place.end for place in found]
    assert {EventType(place.header.event_type).name for place in found} >= {"XID", "XA_PREPARE", "QUERY_COMPRESSED"}


def test_no_other_test_writes_events_of_its_own() -> None:
    """Layouts of the fixed parts of GTID, QUERY, FORMAT_DESCRIPTION and XA_PREPARE events."""
    layouts = re.compile(r"struct\.pack\(\s*\"<(QIB|IIBHH|H50sIB|BIII)\"")
    sources = files(PROJECT / "tests", "**/*.py")
    writing = [path for path in sources if layouts.search(path.read_text(encoding="utf-8"))]
    assert {path.parent for path in writing} == {PROJECT / "tests" / "kit" / "binlog"}
