"""The 19 bytes: fields where they belong, and lengths that cannot be."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.constants import EventType
from replica.protocol.header import HEADER, EventHeader, parse_header

# XID event of INSERT INTO v.t VALUES (1) on MariaDB 11.8
XID = bytes.fromhex("00f15365 10 01000000 1f000000 1c030000 0000")


def test_fields() -> None:
    assert parse_header(b"..." + XID, 3) == EventHeader(1700000000, EventType.XID, 1, 31, 796, 0)
    assert HEADER.size == 19


def test_artificial() -> None:
    assert parse_header(XID[:17] + b"\x20\x00").is_artificial
    assert not parse_header(XID).is_artificial


def test_too_few_bytes() -> None:
    with pytest.raises(TruncatedError) as caught:
        parse_header(XID, 1)
    assert caught.value.offset == 1


@pytest.mark.parametrize("length", [0, 18])
def test_a_length_below_the_header(length: int) -> None:
    with pytest.raises(ProtocolError, match=rf"XID \(16\) event claims {length} bytes"):
        parse_header(XID[:9] + length.to_bytes(4, "little") + XID[13:])
