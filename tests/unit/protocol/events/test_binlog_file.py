"""Walking files: every event the server's own tool lists, and every way a file can end badly."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ChecksumError, ProtocolError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import BINLOG_MAGIC, ChecksumAlgorithm, EventType, HeaderFlag, TableMapFlag
from replica.protocol.events.binlog_file import decode_file, encode_event, walk
from replica.protocol.events.decode import (
    AnnotateRowsEvent,
    BinlogCheckpointEvent,
    GtidEvent,
    GtidListEvent,
    QueryEvent,
    RotateEvent,
    RowsEvent,
    StopEvent,
    TableMapEvent,
    XidEvent,
)
from tests.vectors.load import BINLOGS, HERE, listing, name_of, raw_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DATA = (HERE / "11.8" / "rotation.1.binlog").read_bytes()
UNCOMPRESSED = {166: 23, 167: 24, 168: 25}


def tells_gtid(event: GtidEvent, text: str) -> bool:
    thread = f" thread_id={event.thread_id}" if event.thread_id is not None else ""
    return text.startswith(f"GTID {event.gtid}") and text.endswith(thread)


def tells_gtid_list(event: GtidListEvent, text: str) -> bool:
    # Newer tools print the list in the order of the domains.
    told = text.removeprefix("Gtid list [").removesuffix("]")
    return sorted(told.split(", ")) == sorted(map(str, event.gtids or [""]))


def tells_query(event: QueryEvent, text: str) -> bool:
    return f"thread_id={event.thread_id} exec_time={event.exec_time} error_code={event.error}" in text


def tells_table_map(event: TableMapEvent, text: str) -> bool:
    triggers = " (has triggers)" if event.flags & TableMapFlag.HAS_TRIGGERS else ""
    return text == f"Table_map: `{event.database}`.`{event.table}` mapped to number {event.table_id}{triggers}"


def tells_rows(event: RowsEvent, text: str) -> bool:
    return f"table id {event.table_id}" in text and ("STMT_END_F" in text) == event.ends_statement


TELLS: dict[type, Callable[[Any, str], bool]] = {
    GtidEvent: tells_gtid,
    GtidListEvent: tells_gtid_list,
    QueryEvent: tells_query,
    TableMapEvent: tells_table_map,
    RowsEvent: tells_rows,
    XidEvent: lambda event, text: text == f"Xid = {event.xid}",
    RotateEvent: lambda event, text: text == f"Rotate to {event.file} pos: {event.position}",
    AnnotateRowsEvent: lambda _, text: text == "Annotate_rows:",
    BinlogCheckpointEvent: lambda event, text: text == f"Binlog checkpoint {event.file}",
    StopEvent: lambda _, text: text == "Stop",
}
"""Whether the tool's words for an event say what we decoded."""


@pytest.mark.parametrize("path", BINLOGS, ids=name_of)
def test_every_event_is_what_mariadb_binlog_says(path: Path) -> None:
    told = listing(path)
    found = list(decode_file(path.read_bytes()))
    assert len(found) == len(told)
    for (place, event), listed in zip(found, told, strict=True):
        header = event.header
        kind, length = header.event_type, header.event_length
        if kind in UNCOMPRESSED:
            # The tool inflates before it prints, header and all.
            kind, length = UNCOMPRESSED[kind], listed.length
        ours = (place.offset, kind, header.server_id, length, header.log_pos, header.flags, header.timestamp)
        assert ours == listed[:7]
        tells = TELLS.get(type(event))
        assert tells is None or tells(event, listed.text), (event, listed)
    assert found[-1][0].end == path.stat().st_size


def test_walk_gives_places_without_decoding() -> None:
    events = list(walk(DATA))
    assert events[0].offset == 4
    assert all(a.end == b.offset for a, b in pairwise(events))
    assert b"".join([BINLOG_MAGIC, *(event.event for event in events)]) == DATA
    assert events[-1].description.server_version.startswith("11.8")


def test_walk_from_inside_a_file_needs_its_description() -> None:
    events = list(walk(DATA))
    rest = list(walk(DATA, events[3].offset, events[0].description))
    assert [event.offset for event in rest] == [event.offset for event in events[3:]]
    with pytest.raises(ProtocolError, match="before any FORMAT_DESCRIPTION"):
        list(walk(DATA, events[3].offset))


@pytest.mark.parametrize("data", [b"", b"\xfebi", b"PAR1" + DATA[4:]])
def test_another_magic(data: bytes) -> None:
    with pytest.raises(ProtocolError, match="not a binlog file"):
        list(walk(data))


def test_an_empty_file_has_no_events() -> None:
    assert list(walk(BINLOG_MAGIC)) == []


def test_every_truncation_ends_with_the_offset_of_the_torn_event() -> None:
    borders = [event.offset for event in walk(DATA)] + [len(DATA)]
    for length in range(4, len(DATA)):
        whole = [border for border in borders if border <= length]
        if length in borders:
            assert len(list(walk(DATA[:length]))) == len(whole) - 1
            continue
        with pytest.raises(TruncatedError) as caught:
            list(walk(DATA[:length]))
        assert caught.value.offset == whole[-1]


def test_errors_have_their_place_in_the_file() -> None:
    found = list(walk(DATA))[5]
    damaged = bytearray(DATA)
    damaged[found.offset + 25] ^= 1
    with pytest.raises(ChecksumError) as caught:
        list(decode_file(damaged))
    assert caught.value.offset == found.offset
    assert str(caught.value).count("at offset") == 1


def test_a_damaged_description_has_its_place_too() -> None:
    damaged = bytearray(DATA)
    damaged[30] ^= 1
    with pytest.raises(ChecksumError, match="at offset 4"):
        list(walk(damaged))


def test_zeros_after_the_last_event_are_an_error() -> None:
    with pytest.raises(ProtocolError) as caught:
        list(walk(DATA + bytes(40)))
    assert caught.value.offset == len(DATA)


@pytest.mark.parametrize(("flags", "encrypted"), [(0, True), (HeaderFlag.IGNORABLE, False)])
def test_encrypted_files_are_refused_and_decrypted_streams_are_not(flags: int, encrypted: bool) -> None:  # noqa: FBT001
    start = encode_event(
        EventType.START_ENCRYPTION, b"\1" + bytes(16), server_id=1, checksum=ChecksumAlgorithm.CRC32, flags=flags
    )
    data = BINLOG_MAGIC + raw_events("11.8", "rotation.1")[0] + start
    if not encrypted:
        assert len(list(walk(data))) == 2
        return
    with pytest.raises(UnsupportedEventError, match="encrypted"):
        list(walk(data))
