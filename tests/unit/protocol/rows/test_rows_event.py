"""Rows events: which columns, which images; of real servers, and MySQL's version 2 by hand."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError
from replica.protocol.compression import inflate
from replica.protocol.constants import EventType, RowsFlag
from replica.protocol.events.decode import RowsEvent, RowsKind, TableMapEvent
from replica.protocol.rows.rows_event import RowsExtra
from tests.unit.protocol.events.decoding import decode_body
from tests.vectors.load import HERE, VERSIONS, decode_file


def rows(version: str, stem: str, table: str) -> list[RowsEvent]:
    found, ids = [], set()
    for _, event in decode_file((HERE / version / f"{stem}.binlog").read_bytes()):
        if isinstance(event, TableMapEvent):
            (ids.add if event.table == table else ids.discard)(event.table_id)
        elif isinstance(event, RowsEvent) and event.table_id in ids:
            found.append(event)
    return found


def test_insert() -> None:
    # 11.8: INSERT INTO v.t VALUES (1, 'short'), (2, 'short')
    images = "fc 01000000 05000000 73686f7274 fc 02000000 05000000 73686f7274"
    event = decode_body(RowsEvent, EventType.WRITE_ROWS_V1, "120000000000 0100 02 03" + images)
    assert (event.kind, event.version, event.table_id, event.width) == (RowsKind.INSERT, 1, 18, 2)
    assert event.ends_statement
    assert (event.columns_before, event.columns_after) == (b"", b"\x03")
    assert bytes(event.images) == bytes.fromhex(images)
    assert not event.compressed


def test_update_has_two_sets_of_columns() -> None:
    # 10.11, MINIMAL: UPDATE keyed SET a = a + 1
    event = decode_body(RowsEvent, EventType.UPDATE_ROWS_V1, "120000000000 0000 05 e1 e2 fe 01000000 fe 0b000000")
    assert (event.columns_before, event.columns_after) == (b"\xe1", b"\xe2")
    assert not event.ends_statement


def test_delete_has_only_before_images() -> None:
    event = decode_body(RowsEvent, EventType.DELETE_ROWS_V1, "120000000000 0100 05 e1 fe 01000000")
    assert (event.columns_before, event.columns_after) == (b"\xe1", b"")


@pytest.mark.parametrize("version", VERSIONS)
def test_minimal_images(version: str) -> None:
    events = rows(version, "minimal_image", "keyed")
    # Bits of the five columns; the server sets the unused ones or not, they do not count.
    masks = [
        (e.kind.name, *(int.from_bytes(bits, "little") & 0x1F for bits in (e.columns_before, e.columns_after)))
        for e in events
    ]
    assert masks == [
        ("INSERT", 0, 0b11111),
        ("INSERT", 0, 0b00101),
        ("UPDATE", 0b00001, 0b00010),
        ("UPDATE", 0b00001, 0b00001),
        ("DELETE", 0b00001, 0),
        ("UPDATE", 0b10111, 0b10111),
        ("DELETE", 0b10111, 0),
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_one_statement_of_many_events(version: str) -> None:
    events = rows(version, "minimal_image", "many")
    assert [bool(event.flags & RowsFlag.STMT_END) for event in events] == [False, False, True]
    # null bitmap, INT, one byte of length, forty characters
    assert sum(len(event.images) for event in events) == 400 * (1 + 4 + 1 + 40)


@pytest.mark.parametrize("version", VERSIONS)
def test_compressed_images_inflate_to_the_plain_ones(version: str) -> None:
    events = rows(version, "compression", "t")
    assert [event.compressed for event in events] == [False] + [True] * 6
    inserted = b"".join(inflate(event.images) for event in events[1:3])
    assert inserted == (
        b"\xfc\x03\0\0\0" + (500).to_bytes(4, "little") + b"long " * 100
        + b"\xfc\x04\0\0\0" + (70000).to_bytes(4, "little") + b"x" * 70000
    )  # fmt: skip


def test_version_2_reads_extra_data() -> None:
    # by hand, as MySQL writes partition information: type 1, partition id 3
    event = decode_body(RowsEvent, EventType.WRITE_ROWS, "120000000000 0100 0500 010300 02 03 fc 01000000")
    assert (event.version, event.extra, event.width) == (2, RowsExtra(partition=3), 2)
    assert len(event.images) == 5


def test_version_2_whose_extra_data_is_shorter_than_its_length() -> None:
    with pytest.raises(ProtocolError, match="shorter than its own length"):
        decode_body(RowsEvent, EventType.WRITE_ROWS, "120000000000 0100 0100 02 03")


def test_dummy_event_only_ends_the_statement() -> None:
    event = decode_body(RowsEvent, EventType.WRITE_ROWS_V1, "ffffff000000 0100 00")
    assert event.is_dummy
    assert event.ends_statement


def test_impossible_width() -> None:
    with pytest.raises(ProtocolError, match="16777215 columns"):
        decode_body(RowsEvent, EventType.WRITE_ROWS_V1, "120000000000 0100 fdffffff")
