"""Events about the binlog itself, from real streams and by hand where a server does not make them at will."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.constants import ChecksumAlgorithm, EventType, HeaderFlag
from replica.protocol.events.decode import (
    BinlogCheckpointEvent,
    HeartbeatEvent,
    IncidentEvent,
    RotateEvent,
    StartEncryptionEvent,
    StopEvent,
    decode,
)
from tests.unit.protocol.events.decoding import DESCRIPTION, decode_body
from tests.vectors.load import VERSIONS, raw_events

# The artificial ROTATE that MariaDB 10.5 sent first in a dump, CRC32 announced.
FIRST_ROTATE = bytes.fromhex(
    "00000000 04 01000000 29000000 00000000 2000 0400000000000000 62696e2e303030303031 738f82a5"
)


@pytest.mark.parametrize("checksum", [None, ChecksumAlgorithm.CRC32])
def test_the_first_rotate_of_a_dump_comes_before_any_description(checksum: ChecksumAlgorithm | None) -> None:
    event = decode(FIRST_ROTATE, checksum=checksum)
    assert isinstance(event, RotateEvent)
    assert (event.file, event.position) == ("bin.000001", 4)
    assert event.header.is_artificial


def test_the_first_rotate_without_checksum() -> None:
    raw = FIRST_ROTATE[:9] + (len(FIRST_ROTATE) - 4).to_bytes(4, "little") + FIRST_ROTATE[13:-4]
    event = decode(raw)
    assert isinstance(event, RotateEvent)
    assert event.file == "bin.000001"


def test_a_file_name_must_be_text() -> None:
    with pytest.raises(ProtocolError, match="utf-8"):
        decode_body(RotateEvent, EventType.ROTATE, "0400000000000000 ff")


@pytest.mark.parametrize("character", ["\x00", "\n", "\x1b", "\x7f", "\x9b"])
def test_a_file_name_has_no_control_characters(character: str) -> None:
    name = f"bin{character}.000001".encode().hex()
    with pytest.raises(ProtocolError, match=r"control characters: 'bin\\"):
        decode_body(RotateEvent, EventType.ROTATE, f"0400000000000000 {name}")
    with pytest.raises(ProtocolError, match="control characters"):
        decode_body(HeartbeatEvent, EventType.HEARTBEAT, f"0400000000000000 {name}")


@pytest.mark.parametrize("version", VERSIONS)
def test_stop_ends_a_file_after_a_clean_shutdown(version: str) -> None:
    raw = raw_events(version, "rotation.4")
    assert isinstance(decode(raw[-1], decode(raw[0])), StopEvent)  # type: ignore[arg-type]


def test_binlog_checkpoint() -> None:
    event = decode_body(BinlogCheckpointEvent, EventType.BINLOG_CHECKPOINT, "0a000000 62696e2e303030303031")
    assert event.file == "bin.000001"
    with pytest.raises(TruncatedError):
        decode_body(BinlogCheckpointEvent, EventType.BINLOG_CHECKPOINT, "0b000000 62696e2e303030303031")


def test_heartbeat_with_the_position_in_its_header() -> None:
    event = decode_body(HeartbeatEvent, EventType.HEARTBEAT, b"bin.000002", log_pos=1234)
    assert (event.file, event.position) == ("bin.000002", 1234)


@pytest.mark.edge(66)
def test_heartbeat_beyond_4_gib_has_the_position_in_its_body() -> None:
    event = decode_body(HeartbeatEvent, EventType.HEARTBEAT, (5 << 30).to_bytes(8, "little") + b"bin.000002", log_pos=0)
    assert (event.file, event.position) == ("bin.000002", 5 << 30)


def test_heartbeat_v2_of_a_mysql_server() -> None:
    """The bytes that MySQL 9.7 sent while its binlog was idle."""
    event = decode_body(HeartbeatEvent, EventType.HEARTBEAT_V2, "010a" + b"bin.000001".hex() + "02019e00")
    assert (event.file, event.position) == ("bin.000001", 158)


def test_heartbeat_v2_with_fields_of_a_later_server_and_a_position_beyond_4_gib() -> None:
    event = decode_body(HeartbeatEvent, EventType.HEARTBEAT_V2, "07036162630209fe000000400100000001016200")
    assert (event.file, event.position) == ("b", 5 << 30)


def test_start_encryption_as_sent_over_the_network() -> None:
    event = decode_body(
        StartEncryptionEvent, EventType.START_ENCRYPTION, "01 02000000" + "ab" * 12, flags=HeaderFlag.IGNORABLE
    )
    assert (event.scheme, event.key_version, event.nonce) == (1, 2, b"\xab" * 12)


def test_incident() -> None:
    event = decode_body(IncidentEvent, EventType.INCIDENT, b"\x01\x00\x04lost")
    assert (event.incident, event.message) == (1, "lost")
    assert decode_body(IncidentEvent, EventType.INCIDENT, "0100").message == ""


def test_the_fixed_part_may_grow() -> None:
    longer = bytearray(DESCRIPTION.post_header_lengths)
    longer[EventType.ROTATE - 1] = 10
    description = type(DESCRIPTION)(
        DESCRIPTION.header, DESCRIPTION.server_version, 0, bytes(longer), ChecksumAlgorithm.NONE
    )
    raw = FIRST_ROTATE[:9] + (39).to_bytes(4, "little") + FIRST_ROTATE[13:27] + b"??" + FIRST_ROTATE[27:37]
    event = decode(raw, description)
    assert isinstance(event, RotateEvent)
    assert event.file == "bin.000001"
