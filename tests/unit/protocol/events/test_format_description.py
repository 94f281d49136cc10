"""FORMAT_DESCRIPTION of real servers, and the ones that cannot be read."""

from __future__ import annotations

import pytest

from replica.errors import ChecksumError, ProtocolError, ReplicaError
from replica.protocol.constants import ChecksumAlgorithm, EventType
from replica.protocol.events.decode import FormatDescriptionEvent, decode, decode_description
from replica.protocol.header import append
from tests.vectors.load import VERSIONS, raw_events

# type, body offset of fields inside the event
VERSION_AT, SERVER_AT, HEADER_LENGTH_AT, LENGTHS_AT = 19, 21, 75, 76


def description(raw: bytes) -> FormatDescriptionEvent:
    event = decode_description(raw)
    assert decode(raw) == event
    return event


def changed(raw: bytes, at: int, replacement: bytes) -> bytes:
    return append(raw[:at] + replacement + raw[at + len(replacement) : -4])


@pytest.mark.parametrize("version", VERSIONS)
def test_fields(version: str) -> None:
    event = description(raw_events(version, "rotation.1")[0])
    assert event.server_version.startswith(f"{version}.")
    assert "MariaDB" in event.server_version
    assert event.created != 0
    assert event.checksum is ChecksumAlgorithm.CRC32
    assert len(event.post_header_lengths) == 171
    lengths = {
        EventType.QUERY: 13, EventType.ROTATE: 8, EventType.XID: 0, EventType.TABLE_MAP: 8, EventType.WRITE_ROWS_V1: 8,
        EventType.WRITE_ROWS: 10, EventType.GTID: 19, EventType.GTID_LIST: 4, EventType.INCIDENT: 2,
        EventType.START_ENCRYPTION: 0, EventType.EXECUTE_LOAD_QUERY: 26, EventType.WRITE_ROWS_COMPRESSED: 10,
    }  # fmt: skip
    assert {kind: event.post_header_length(kind) for kind in lengths} == lengths


@pytest.mark.parametrize("version", VERSIONS)
def test_later_files_are_not_created_at_startup(version: str) -> None:
    assert description(raw_events(version, "rotation.2")[0]).created == 0


@pytest.mark.parametrize("version", VERSIONS)
def test_without_checksums_it_still_has_four_bytes(version: str) -> None:
    raw = raw_events(version, "rotation.3")[0]
    event = description(raw)
    assert event.checksum is ChecksumAlgorithm.NONE
    assert len(event.post_header_lengths) == 171
    # Old servers leave garbage there, so the bytes do not count.
    assert description(raw[:-4] + b"junk") == event


def test_with_checksums_they_must_be_right() -> None:
    with pytest.raises(ChecksumError):
        decode(raw_events("11.8", "rotation.1")[0][:-4] + b"junk")


def test_types_beyond_its_list_are_not_described() -> None:
    event = description(raw_events("11.8", "rotation.1")[0])
    for kind in (0, 172, 255):
        with pytest.raises(ProtocolError, match="does not describe"):
            event.post_header_length(kind)


@pytest.mark.parametrize(
    ("at", "replacement", "message"),
    [
        (VERSION_AT, b"\x03\x00", "binlog format version 3"),
        (HEADER_LENGTH_AT, b"\x14", "event headers of 20 bytes"),
        (-5, b"\x02", "unknown checksum algorithm 2"),
        (SERVER_AT, b"5.5.62-log\0", "'5.5.62-log', older than checksums"),
        (SERVER_AT, b"nonsense\0", "'nonsense', older than checksums"),
    ],
)
def test_refused(at: int, replacement: bytes, message: str) -> None:
    raw = raw_events("11.8", "rotation.1")[0]
    at = at if at > 0 else len(raw) + at
    with pytest.raises(ProtocolError, match=message):
        decode(changed(raw, at, replacement))


def test_another_event_is_no_description() -> None:
    with pytest.raises(ProtocolError, match="GTID_LIST \\(163\\) event before any FORMAT_DESCRIPTION"):
        decode_description(raw_events("11.8", "rotation.1")[1])


def test_every_truncation_is_refused() -> None:
    raw = raw_events("11.8", "rotation.3")[0]
    for length in range(len(raw)):
        short = bytearray(raw[:length])
        if length >= 19:
            short[9:13] = length.to_bytes(4, "little")
        if length == len(raw) - 1:
            continue  # one post-header length less, and the old last one is the algorithm: cannot be told apart
        try:
            event = description(bytes(short))
        except ReplicaError:
            continue
        assert len(event.post_header_lengths) < 171
