from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.packets.login import (
    NEEDED,
    Capability,
    Greeting,
    SwitchRequest,
    handshake_response,
    parse_greeting,
    parse_switch,
    ssl_request,
)


def test_the_request_for_tls_is_the_head_of_the_response() -> None:
    request = ssl_request(NEEDED | Capability.SSL, 45)
    assert len(request) == 32
    assert request[:4] == int(NEEDED | Capability.SSL).to_bytes(4, "little")
    assert request[4:9] == b"\0\0\0\x01\x2d"
    response = handshake_response(
        NEEDED | Capability.SSL, 45, user="ä", answer=b"abc", plugin="p", attributes={"k": "v", "program": "x"}
    )
    assert response[:32] == request
    assert response[32:] == "ä".encode() + b"\0\x03abcp\0\x0e\x01k\x01v\x07program\x01x"


def test_long_answers_have_their_length_in_two_bytes() -> None:
    for length in (0, 250, 251, 256, 5000):
        response = handshake_response(NEEDED, 45, user="u", answer=b"a" * length, plugin="p", attributes={})
        counted = bytes((length,)) if length < 251 else b"\xfc" + length.to_bytes(2, "little")
        assert response[32:] == b"u\0" + counted + b"a" * length + b"p\0\0"


def test_a_zero_byte_in_a_name_ends_nothing() -> None:
    response = handshake_response(NEEDED, 45, user="u\0v", answer=b"", plugin="p", attributes={})
    assert response[32:36] == b"uv\0\0"


def test_requests_to_change_the_plugin() -> None:
    assert parse_switch(b"\xfename\0data\0") == SwitchRequest("name", b"data\0")
    assert parse_switch(b"\xfename\0") == SwitchRequest("name", b"")
    assert parse_switch(b"\xfe") == SwitchRequest("mysql_old_password", b"")
    for damaged in (b"\xfename", b"\x00name\0", b""):
        with pytest.raises(ProtocolError):
            parse_switch(damaged)


# As MariaDB 11.8 says it; the scramble is made up.
GREETING = (
    b"\x0a11.8.6-MariaDB-log\0\x29\0\0\0abcdefgh\0\xfe\xff\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0"
    b"ijklmnopqrst\0mysql_native_password\0"
)


@pytest.mark.parametrize("packet", [GREETING, GREETING[:-1]])
def test_a_greeting(packet: bytes) -> None:
    found = parse_greeting(packet)
    assert found == Greeting("11.8.6-MariaDB-log", 41, b"abcdefghijklmnopqrst", 0x81FFFFFE, 2, "mysql_native_password")


def test_a_greeting_without_plugins() -> None:
    packet = GREETING.replace(b"\xff\x81\x15", b"\0\0\0")[: -len(b"ijklmnopqrst\0mysql_native_password\0")]
    found = parse_greeting(packet)
    assert (found.scramble, found.plugin, found.capabilities) == (b"abcdefgh", "", 0xFFFE)


@given(st.one_of(st.binary(), st.integers(0, len(GREETING)).map(lambda cut: GREETING[:cut])))
def test_whatever_greets_is_a_greeting_or_an_error_of_ours(packet: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        parse_greeting(packet)
