"""Prepared statements, packet by packet."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.packets.results import (
    MAX_COLUMNS,
    ErrorReply,
    Prepared,
    ResultColumn,
    com_stmt_close,
    com_stmt_execute,
    com_stmt_prepare,
    parse_column,
    prepare_reply,
    result_columns,
    row_end,
)

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_Answer = TypeVar("_Answer")

# COM_STMT_PREPARE and COM_STMT_EXECUTE of SELECT id, t AS text FROM s.p; as MariaDB 11.8 sends it to a session whose
# character_set_results is NULL; p is (id INT UNSIGNED PRIMARY KEY, t VARCHAR(10) CHARACTER SET latin1)
ID = bytes.fromhex("03646566 0173 0170 0170 026964 026964 0c3f000a000000032350000000")
TEXT = bytes.fromhex("03646566 0173 0170 0170 0474657874 0174 0c08000a000000fd0000000000")
PREPARED = bytes.fromhex("00 01000000 0200 0000 00 0000")
EOF, ERR = b"\xfe\0\0\x02\0", b"\xff\x84\x05#HY000Table definition has changed, please retry transaction"
COLUMNS = (ResultColumn("id", 3, 63, 0x5023, 10, 0), ResultColumn("text", 253, 8, 0, 10, 0))


def read(reading: Generator[None, bytes, _Answer], payloads: Iterable[bytes]) -> _Answer:
    next(reading)
    for payload in payloads:
        try:
            reading.send(payload)
        except StopIteration as done:
            answer: _Answer = done.value
            return answer
    raise EOFError


def test_commands() -> None:
    assert com_stmt_prepare("SELECT 1") == b"\x16SELECT 1"
    assert com_stmt_execute(0x01020304) == bytes.fromhex("17 04030201 00 01000000")
    assert com_stmt_close(7) == bytes.fromhex("19 07000000")


def test_a_prepared_statement_and_the_columns_of_its_result() -> None:
    assert read(prepare_reply(), [PREPARED, ID, TEXT, EOF]) == Prepared(1, 2)
    assert read(result_columns(), [b"\x02", ID, TEXT, EOF]) == COLUMNS


def test_a_statement_without_a_result_is_prepared_too() -> None:
    assert read(prepare_reply(), [bytes.fromhex("00 09000000 0000 0000 00 0000")]) == Prepared(9, 0)


@pytest.mark.parametrize("before", range(4))
@pytest.mark.parametrize(("reading", "head"), [(prepare_reply, PREPARED), (result_columns, b"\x02")])
def test_an_error_may_come_anywhere(reading: Any, head: bytes, before: int) -> None:
    with pytest.raises(ErrorReply) as caught:
        read(reading(), [*[head, ID, TEXT][:before], ERR])
    assert (caught.value.packet.code, caught.value.packet.sqlstate) == (1412, "HY000")


@pytest.mark.parametrize(
    ("reading", "payloads", "words"),
    [
        (prepare_reply, [b"\x01"], "starts with the unexpected byte 0x01"),
        (prepare_reply, [bytes.fromhex("00 01000000 0110 0000 00 0000")], "4097 columns"),
        (prepare_reply, [bytes.fromhex("00 01000000 0100 0100 00 0000")], "1 parameters"),
        (prepare_reply, [PREPARED, ID, TEXT, ID], "no EOF"),
        (result_columns, [b"\xfb/etc/passwd"], "file of this machine"),
        (result_columns, [b"\0\0\0\2\0\0\0"], "has no result"),
        (result_columns, [EOF], "has no result"),
        (result_columns, [b"\xfc\x01\x10"], f"at most {MAX_COLUMNS} are possible"),
        (result_columns, [b"\x02\x02"], "are possible"),
        (result_columns, [b"\x01", ID[:-13] + b"\x0d" + ID[-12:]], "a column definition"),
        (result_columns, [b"\x01", ID + b"\0"], "a column definition"),
    ],
)
def test_what_is_no_answer(reading: Any, payloads: list[bytes], words: str) -> None:
    with pytest.raises(ProtocolError, match=words):
        read(reading(), payloads)


def test_what_ends_rows() -> None:
    row_end(EOF)
    row_end(EOF[:1])
    with pytest.raises(ErrorReply):
        row_end(ERR)
    for payload in (b"", b"\x01", b"\xfb", b"\xfe" * 9):
        with pytest.raises(ProtocolError, match="neither a row nor the end of the rows"):
            row_end(payload)


@given(
    st.text(max_size=300),
    st.integers(0, 255),
    st.integers(0, 65535),
    st.integers(0, 65535),
    st.integers(0, 2**32 - 1),
    st.integers(0, 255),
    st.text(max_size=300),
)
def test_any_column(name: str, kind: int, charset: int, flags: int, length: int, decimals: int, other: str) -> None:
    def counted(text: str) -> bytes:
        data = text.encode()
        return (bytes((len(data),)) if len(data) < 0xFB else b"\xfc" + len(data).to_bytes(2, "little")) + data

    end = struct.pack("<BHIBHBH", 12, charset, length, kind, flags, decimals, 0)
    payload = b"".join(map(counted, ("def", other, other, other, name, other))) + end
    assert parse_column(payload) == (name, kind, charset, flags, length, decimals)


@pytest.mark.parametrize("payload", [ID, TEXT])
def test_every_truncation_of_a_definition_is_refused(payload: bytes) -> None:
    for length in range(len(payload)):
        with pytest.raises(ProtocolError):
            parse_column(payload[:length])


@given(st.sampled_from([prepare_reply, result_columns]), st.lists(st.binary(max_size=40), min_size=1))
def test_any_bytes_are_an_answer_an_error_or_refused(reading: Any, payloads: list[bytes]) -> None:
    try:
        answer = read(reading(), payloads)
    except (ProtocolError, ErrorReply, EOFError):
        return
    assert isinstance(answer, tuple)
