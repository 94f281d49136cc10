"""Events around a statement; bodies of MariaDB 10.11 unless said otherwise."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError
from replica.protocol.constants import EventType, HeaderFlag
from replica.protocol.events.decode import (
    AnnotateRowsEvent,
    ExecuteLoadQueryEvent,
    IntvarEvent,
    LoadBlockEvent,
    RandEvent,
    RowsQueryEvent,
    UserVarEvent,
)
from tests.unit.protocol.events.decoding import decode_body
from tests.vectors.load import HERE, VERSIONS, decode_file


def user_var(body: str) -> UserVarEvent:
    return decode_body(UserVarEvent, EventType.USER_VAR, body)


def test_annotate_rows_is_the_text_and_nothing_else() -> None:
    event = decode_body(AnnotateRowsEvent, EventType.ANNOTATE_ROWS, "INSERT INTO t VALUES ('é')".encode())
    assert event.query.decode() == "INSERT INTO t VALUES ('é')"


def test_rows_query_of_mysql() -> None:
    event = decode_body(RowsQueryEvent, EventType.ROWS_QUERY, b"\x0aINSERT INTO", flags=HeaderFlag.IGNORABLE)
    assert event.query == b"INSERT INTO"


def test_intvar() -> None:
    event = decode_body(IntvarEvent, EventType.INTVAR, "02 0100000000000000")
    assert (event.kind, event.value) == (2, 1)


def test_rand() -> None:
    event = decode_body(RandEvent, EventType.RAND, "0100000000000000 0200000000000000")
    assert (event.seed1, event.seed2) == (1, 2)


def test_user_variables() -> None:
    text = user_var("04000000 74657874 00 00 2d000000 02000000 c3a9")
    assert (text.name, text.value, text.kind, text.collation) == (b"text", "é".encode(), 0, 45)
    # SET @int = 18446744073709551615: one byte of flags follows the value
    number = user_var("03000000 696e74 00 02 08000000 08000000 ffffffffffffffff 01")
    assert (number.kind, number.unsigned) == (2, True)
    assert not user_var("03000000 696e74 00 02 08000000 08000000 ffffffffffffffff 00").unsigned
    assert not user_var("03000000 696e74 00 02 08000000 08000000 ffffffffffffffff").unsigned
    # SET @decimal = -1.25: precision, scale, packed digits
    assert user_var("07000000 646563696d616c 00 04 08000000 04000000 03027ee6").value == bytes.fromhex("03027ee6")
    nothing = user_var("07000000 6e6f7468696e67 01")
    assert (nothing.name, nothing.value) == (b"nothing", None)


def test_user_variable_longer_than_the_event() -> None:
    with pytest.raises(ProtocolError):
        user_var("ffffffff 6162")


def test_load_block() -> None:
    event = decode_body(LoadBlockEvent, EventType.BEGIN_LOAD_QUERY, b"\x07\0\0\0a\t1\n")
    assert (event.file_id, bytes(event.data)) == (7, b"a\t1\n")
    assert decode_body(LoadBlockEvent, EventType.APPEND_BLOCK, b"\x07\0\0\0").file_id == 7


@pytest.mark.parametrize("version", VERSIONS)
def test_load_data_in_statement_format(version: str) -> None:
    binlog = (HERE / version / "transactions.binlog").read_bytes()
    events = [event for _, event in decode_file(binlog)]
    (block,) = [event for event in events if isinstance(event, LoadBlockEvent)]
    (load,) = [event for event in events if isinstance(event, ExecuteLoadQueryEvent)]
    assert bytes(block.data) == b"a\t1\tfrom a file\n"
    assert load.file_id == block.file_id
    assert load.query.startswith(b"LOAD DATA INFILE '../load.txt' IGNORE INTO TABLE `s`")
    assert load.query[load.name_start : load.name_end].strip() == b"INFILE '../load.txt' IGNORE INTO"
    assert (load.duplicates, load.database) == (1, "v")
