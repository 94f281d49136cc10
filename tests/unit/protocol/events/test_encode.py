"""What we write is what a server writes: real events, encoded again, are the same bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.protocol.constants import ChecksumAlgorithm
from replica.protocol.events.binlog_file import encode_event, encode_gtid_list, encode_rotate
from replica.protocol.events.decode import FormatDescriptionEvent, GtidListEvent, RotateEvent, decode
from replica.protocol.gtid import Gtid
from replica.protocol.packets.packets import PacketSplitter
from tests.vectors.load import BINLOGS, STREAMS, decode_file, name_of


@pytest.mark.parametrize("path", BINLOGS, ids=name_of)
def test_events_of_a_file_round_trip(path: object) -> None:
    compared = 0
    for found, event in decode_file(path.read_bytes()):  # type: ignore[attr-defined]
        header = event.header
        common = {
            "server_id": header.server_id,
            "checksum": found.description.checksum,
            "timestamp": header.timestamp,
            "log_pos": header.log_pos,
            "flags": header.flags,
        }
        if isinstance(event, RotateEvent):
            raw = encode_rotate(event.file, event.position, **common)
        elif isinstance(event, GtidListEvent):
            raw = encode_gtid_list(event.gtids, **common)
        elif isinstance(event, FormatDescriptionEvent):
            continue
        else:
            end = -4 if found.description.checksum else len(found.event)
            raw = encode_event(header.event_type, bytes(found.event[19:end]), **common)
        assert raw == found.event
        compared += 1
    assert compared > 5


@pytest.mark.parametrize("path", [p for p in STREAMS if "semisync" not in p.name], ids=name_of)
def test_the_artificial_rotate_is_the_servers(path: object) -> None:
    first = next(PacketSplitter().feed(path.read_bytes()))[1:]  # type: ignore[attr-defined]
    event = decode(first)
    assert isinstance(event, RotateEvent)
    assert encode_rotate(event.file, event.position, server_id=1, checksum=ChecksumAlgorithm.CRC32) == first


def test_positions_beyond_4_gib_are_cut_to_the_header() -> None:
    raw = encode_rotate("f", 4, server_id=1, checksum=ChecksumAlgorithm.NONE, log_pos=(5 << 32) + 7)
    assert decode(raw).header.log_pos == 7


@given(st.lists(st.builds(Gtid, st.integers(0, 9), st.integers(0, 9), st.integers(0, 2**64 - 1)), max_size=9))
def test_gtid_lists_round_trip(gtids: list[Gtid]) -> None:
    raw = encode_gtid_list(gtids, server_id=7, checksum=ChecksumAlgorithm.CRC32, flags=0)
    event = decode(raw, checksum=ChecksumAlgorithm.CRC32, description=_description())
    assert isinstance(event, GtidListEvent)
    assert event.gtids == tuple(gtids)


def _description() -> FormatDescriptionEvent:
    (_, event) = next(decode_file(BINLOGS[0].read_bytes()))
    assert isinstance(event, FormatDescriptionEvent)
    return event
