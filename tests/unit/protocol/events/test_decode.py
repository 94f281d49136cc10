"""Laws of `decode`: truncations and garbage raise our errors only, unknown types are skipped only when allowed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ChecksumError, ProtocolError, ReplicaError, TruncatedError, UnsupportedEventError
from replica.protocol.constants import ChecksumAlgorithm, EventType, HeaderFlag
from replica.protocol.events.binlog_file import encode_event
from replica.protocol.events.decode import DECODERS, FormatDescriptionEvent, UnknownEvent, decode
from replica.protocol.header import append
from replica.protocol.packets.packets import PacketSplitter, parse_reply
from replica.semisync.frame import strip
from tests.unit.protocol.events.decoding import DESCRIPTION
from tests.vectors.load import BINLOGS, STREAMS, VERSIONS, name_of, raw_events

if TYPE_CHECKING:
    from pathlib import Path

    from replica.protocol.events.decode import Event

NONE = ChecksumAlgorithm.NONE


def samples(version: str) -> list[bytes]:
    """Up to three bodies of every event type a server wrote, without checksum: complete events."""
    kept: dict[int, list[bytes]] = {}
    for path in BINLOGS:
        if path.parent.name != version:
            continue
        raw = raw_events(version, path.stem)
        has_checksum = decode(raw[0]).checksum is ChecksumAlgorithm.CRC32  # type: ignore[attr-defined]
        for event in raw[1:]:
            content = event[:-4] if has_checksum else event
            some = kept.setdefault(content[4], [])
            if len(some) < 3 and len(content) < 400:
                some.append(relength(content))
    return [event for some in kept.values() for event in some]


def relength(event: bytes) -> bytes:
    return event[:9] + len(event).to_bytes(4, "little") + event[13:]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_truncation_decodes_or_raises_our_error(version: str) -> None:
    events = samples(version)
    assert len({event[4] for event in events}) >= 20
    for event in events:
        assert decode(event, DESCRIPTION).header.event_type == event[4]
        for length in range(len(event)):
            with pytest.raises(TruncatedError):
                decode(event[:length], DESCRIPTION)
            if length >= 19:
                try:
                    decode(relength(event[:length]), DESCRIPTION)
                except ReplicaError:
                    continue


@given(st.sampled_from(sorted(DECODERS)), st.binary(max_size=80), st.integers(0, 0xFFFF))
def test_garbage_bodies_raise_our_errors_only(event_type: int, body: bytes, flags: int) -> None:
    raw = encode_event(event_type, body, server_id=1, checksum=NONE, flags=flags)
    try:
        event = decode(raw, DESCRIPTION)
    except ReplicaError:
        return
    assert event.header.event_type == event_type


@given(st.binary(max_size=120))
def test_garbage_events_raise_our_errors_only(data: bytes) -> None:
    with pytest.raises(ReplicaError):
        decode(data, DESCRIPTION)


@given(st.data())
def test_real_events_with_changed_bytes_raise_our_errors_only(data: st.DataObject) -> None:
    event = bytearray(data.draw(st.sampled_from(SAMPLES)))
    for _ in range(data.draw(st.integers(1, 4))):
        event[data.draw(st.integers(19, len(event) - 1)) if len(event) > 19 else 4] = data.draw(st.integers(0, 255))
    try:
        decode(event, DESCRIPTION)
    except ReplicaError:
        return


SAMPLES = samples("11.8")


def test_an_unknown_type_stops_the_reading() -> None:
    raw = encode_event(200, b"body", server_id=1, checksum=NONE)
    with pytest.raises(UnsupportedEventError, match="type 200 event cannot be read"):
        decode(raw, DESCRIPTION)


def test_an_unknown_type_that_may_be_ignored_comes_out_with_its_bytes() -> None:
    event = decode(encode_event(200, b"body", server_id=1, checksum=NONE, flags=HeaderFlag.IGNORABLE), DESCRIPTION)
    assert isinstance(event, UnknownEvent)
    assert event.body == b"body"


@pytest.mark.parametrize(
    "event_type",
    [
        *(EventType.START_V3, EventType.LOAD, EventType.SLAVE, EventType.CREATE_FILE, EventType.EXEC_LOAD),
        *(EventType.NEW_LOAD, EventType.PRE_GA_WRITE_ROWS, EventType.PRE_GA_UPDATE_ROWS, EventType.PRE_GA_DELETE_ROWS),
    ],
)
def test_known_types_without_a_decoder_are_never_skipped_silently(event_type: EventType) -> None:
    for flags in (0, HeaderFlag.IGNORABLE):
        raw = encode_event(event_type, bytes(30), server_id=1, checksum=NONE, flags=flags)
        with pytest.raises(UnsupportedEventError, match=f"{event_type.name} .* before MySQL 5.1"):
            decode(raw, DESCRIPTION)


def test_events_before_the_description() -> None:
    raw = encode_event(EventType.XID, bytes(8), server_id=1, checksum=NONE)
    with pytest.raises(ProtocolError, match="before any FORMAT_DESCRIPTION"):
        decode(raw)


def test_a_length_that_is_not_the_events() -> None:
    raw = encode_event(EventType.XID, bytes(8), server_id=1, checksum=NONE)
    with pytest.raises(ProtocolError, match="of 27 bytes, got 28"):
        decode(raw + b"\0", DESCRIPTION)


def test_the_checksum_is_the_descriptions_unless_given() -> None:
    with_crc = dataclasses.replace(DESCRIPTION, checksum=ChecksumAlgorithm.CRC32)
    raw = encode_event(EventType.XID, bytes(8), server_id=1, checksum=ChecksumAlgorithm.CRC32)
    assert decode(raw, with_crc) == decode(raw, DESCRIPTION, checksum=ChecksumAlgorithm.CRC32)
    with pytest.raises(ChecksumError):
        decode(append(raw[:-4])[:-1] + b"\0", with_crc)


@pytest.mark.parametrize("path", STREAMS, ids=name_of)
def test_a_dump_over_several_files_and_checksum_changes(path: Path) -> None:
    description: FormatDescriptionEvent | None = None
    kinds: list[str] = []
    events: list[Event] = []
    for payload in PacketSplitter().feed(path.read_bytes()):
        if payload[0] != 0:
            kinds.append(type(parse_reply(payload)).__name__)
            continue
        content = payload[1:]
        if ".semisync" in path.name:
            content, ack_wanted = strip(content)
            assert not ack_wanted
        # The artificial ROTATE of the next file has the algorithm of the file before it.
        event = decode(content, description)
        if isinstance(event, FormatDescriptionEvent):
            description = event
        events.append(event)
    assert kinds == ["EofPacket"]
    descriptions = [event for event in events if isinstance(event, FormatDescriptionEvent)]
    assert [one.checksum for one in descriptions] == [1, 1, 0, 1]
    gtids = [str(event.gtid) for event in events if event.header.event_type == EventType.GTID]  # type: ignore[attr-defined]
    assert gtids == ["0-1-1", "0-1-2", "0-1-3", "7-1-1", "7-1-2", "7-1-3"]
