"""Replies to statements, packet by packet."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.packets.results import MAX_COLUMNS, ErrorReply, Reply, read_reply

if TYPE_CHECKING:
    from collections.abc import Iterable

# SELECT 'a' AS x, NULL AS y, '€' AS z; as MariaDB 11.8 sends it
RECORDED = (
    "03",
    "0364656600000001780000" + "0c2d0004000000fd0100270000",
    "0364656600000001790000" + "0c3f000000000006800000 0000".replace(" ", ""),
    "03646566000000017a0000" + "0c2d0004000000fd0100270000",
    "fe00000200",
    "0161fb03e282ac",
    "fe00000200",
)
OK, EOF, MORE = b"\0\0\0\x02\0\0\0", b"\xfe\0\0\x02\0", b"\xfe\0\0\x0a\0"
DEFINITION = bytes.fromhex(RECORDED[1])


def read(payloads: Iterable[bytes]) -> Reply:
    reading = read_reply()
    next(reading)
    for payload in payloads:
        try:
            reading.send(payload)
        except StopIteration as done:
            return Reply(done.value.rows, done.value.status)
    raise EOFError


def test_rows_are_text_and_null() -> None:
    assert read(map(bytes.fromhex, RECORDED)) == Reply([("a", None, "€")], 2)


def test_a_statement_without_rows() -> None:
    assert read([OK]) == Reply([], 2)


def test_the_first_of_several_results_is_the_answer_and_the_last_the_status() -> None:
    one = [b"\x01", DEFINITION, EOF]
    assert read([*one, b"\x01a", MORE, *one, b"\x01b", MORE, b"\0\0\0\x22\0\0\0"]) == Reply([("a",)], 0x22)


@pytest.mark.parametrize("before", [0, 1, 2, 3, 4])
def test_an_error_may_come_anywhere(before: int) -> None:
    said = [b"\x01", DEFINITION, EOF, b"\x01a"][:before]
    if before == 2:
        said = [b"\x02", DEFINITION]
    with pytest.raises(ErrorReply) as raised:
        read([*said, b"\xff\x15\x04#28000no"])
    assert raised.value.packet.code == 1045


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ([b"\xfb/etc/passwd"], "asks for a file of this machine"),
        ([b"\xfc\x01\x10"], f"a result of 4097 columns; at most {MAX_COLUMNS}"),
        ([b"\xfe" + b"\xff" * 8], "not OK, EOF or ERR"),
        ([b"\x01\x01"], "columns"),
        ([b"\x01", DEFINITION, b"\x01a"], "not OK, EOF or ERR"),
        ([b"\x02", DEFINITION, DEFINITION, EOF, b"\x01a"], "bytes wanted"),
        ([b"\x01", DEFINITION, EOF, b"\x01ab"], "1 bytes after the last value"),
        ([b"\x01", DEFINITION, EOF, b"\x02\xff\xfe"], "is not UTF-8, although the session is set to UTF-8"),
        ([b"\x01", DEFINITION, EOF, b"\xfe" + b"\xff" * 8], "bytes wanted"),
    ],
)
def test_what_is_no_reply_is_refused(said: list[bytes], error: str) -> None:
    with pytest.raises(ProtocolError, match=error):
        read(said)


@given(st.lists(st.one_of(st.binary(min_size=1), st.sampled_from([OK, EOF, MORE, DEFINITION, b"\x01"]))))
def test_whatever_comes_is_a_reply_or_an_error_of_ours(payloads: list[bytes]) -> None:
    with contextlib.suppress(ProtocolError, ErrorReply, EOFError):
        read(payloads)
