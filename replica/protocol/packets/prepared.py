"""Prepared statements: the commands, their answers, and the columns of a result.

In: payloads in order, each sent into a generator. Out: the id of the statement, and the columns of its result. The
caller reads the rows after them, packet by packet. The generators store nothing of a packet before it arrives.

Refused: statements with parameters (values are literals), more columns than a table can have, answers that are no
result, a request for a local file. An ERR packet raises an `ErrorReply`, which the caller handles.

Source: MariaDB 10.11, sql/sql_prepare.cc (send_prep_stmt, mysql_stmt_execute_common) and sql/protocol.cc
(Protocol::send_result_set_metadata, Protocol_text::store_field_metadata). The login asks for neither
CLIENT_DEPRECATE_EOF nor MariaDB's extended metadata.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError
from replica.protocol.packets.packets import EOF, ERR, OK, EofPacket, ErrPacket, is_eof, parse_reply
from replica.protocol.packets.result_set import MAX_COLUMNS, ErrorReply
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Generator

_STMT_PREPARE: Final = 0x16
_STMT_EXECUTE: Final = 0x17
_STMT_CLOSE: Final = 0x19
_NO_CURSOR: Final = 0
_ITERATIONS: Final = 1  # "must be 1" since 4.1
_DEFINITION: Final = struct.Struct(
    "<"
    "B"  # length of what follows, 12
    "H"  # charset    number of a collation; 63 for what is no text
    "I"  # length     in bytes, the most
    "B"  # type       ColumnType's codes, without the binlog's own
    "H"  # flags
    "B"  # decimals
    "H"  # unused
)
_DEFINED_BYTES: Final = 12
_LOCAL_INFILE: Final = 0xFB


class ResultColumn(NamedTuple):
    """A column of a result. `name` is the name in the result, which is the alias if there is one.

    `charset` is a collation of the column's character set, not always the column's own collation: servers report
    utf8mb4_unicode_ci (224) for utf8mb4_uca1400_ai_ci (measured on 11.8).
    """

    name: str
    type: int
    charset: int
    flags: int
    length: int
    decimals: int


class Prepared(NamedTuple):
    """A prepared statement: its number on the server, and the number of its result columns."""

    statement: int
    columns: int


def com_stmt_prepare(sql: str) -> bytes:
    """Return the COM_STMT_PREPARE payload."""
    return bytes((_STMT_PREPARE,)) + sql.encode()


def com_stmt_execute(statement: int) -> bytes:
    """Return the COM_STMT_EXECUTE payload for a statement without parameters and without a cursor."""
    return struct.pack("<BIBI", _STMT_EXECUTE, statement, _NO_CURSOR, _ITERATIONS)


def com_stmt_close(statement: int) -> bytes:
    """Return the COM_STMT_CLOSE payload, which drops a prepared statement. The server never answers it."""
    return struct.pack("<BI", _STMT_CLOSE, statement)


def prepare_reply() -> Generator[None, bytes, Prepared]:
    """Consume payloads until the answer to COM_STMT_PREPARE is complete.

    Raises:
        ErrorReply: an ERR packet.
        ProtocolError: the answer is refused, see the module docstring.
    """
    prepared = _prepared((yield))
    if prepared.columns:
        # The server sends the columns again before the rows, and only those are current.
        yield from _definitions(prepared.columns)
    return prepared


def result_columns() -> Generator[None, bytes, tuple[ResultColumn, ...]]:
    """Consume payloads up to the first row of the answer to COM_STMT_EXECUTE.

    Raises:
        ErrorReply: an ERR packet.
        ProtocolError: the answer is refused, see the module docstring, or the statement has no result.
    """
    payload = yield
    kind = payload[0] if payload else ERR
    if kind == ERR:
        _refuse(payload)
    if kind == _LOCAL_INFILE:
        raise ProtocolError(
            "the server asks for a file of this machine in reply to a statement; the request is refused"
        )
    if kind in (OK, EOF):
        raise ProtocolError("the answer to a statement that reads a table has no result")
    cursor = Cursor(payload)
    count = cursor.lenenc()
    if count > MAX_COLUMNS or cursor:
        raise ProtocolError(f"a result of {count} columns; at most {MAX_COLUMNS} are possible", offset=0)
    return (yield from _definitions(count))


def parse_column(payload: Buffer) -> ResultColumn:
    """Parse one column definition of protocol 4.1.

    Raises:
        ErrorReply: an ERR packet in its place.
        ProtocolError: the definition has another length.
    """
    if payload[:1] == bytes((ERR,)):
        _refuse(payload)
    cursor = Cursor(payload)
    for _ in ("catalog", "schema", "alias of the table", "table"):
        cursor.skip(cursor.lenenc())
    name = cursor.text(cursor.lenenc())
    cursor.skip(cursor.lenenc())  # the name in the table
    start = cursor.offset
    size, charset, length, kind, flags, decimals, _ = _DEFINITION.unpack(cursor.take(_DEFINITION.size))
    if size != _DEFINED_BYTES or cursor:
        raise ProtocolError(f"the fixed part of a column definition has {size + cursor.remaining} bytes", offset=start)
    return ResultColumn(name, kind, charset, flags, length, decimals)


def row_end(payload: Buffer) -> None:
    """Check a packet among rows that is no row; return if it ends the result.

    Raises:
        ErrorReply: an ERR packet.
        ProtocolError: any other packet.
    """
    if is_eof(payload):
        parse_reply(payload)
        return
    if payload[:1] == bytes((ERR,)):
        _refuse(payload)
    first = f"0x{payload[0]:02x}" if len(payload) else "nothing"
    raise ProtocolError(
        f"a packet among rows that starts with {first} is neither a row nor the end of the rows", offset=0
    )


def _prepared(payload: Buffer) -> Prepared:
    cursor = Cursor(payload)
    kind = cursor.u8()
    if kind == ERR:
        _refuse(payload)
    if kind != OK:
        raise ProtocolError(f"an answer to PREPARE starts with the unexpected byte 0x{kind:02x}", offset=0)
    statement, columns, parameters = cursor.u32(), cursor.u16(), cursor.u16()
    if columns > MAX_COLUMNS:
        raise ProtocolError(f"a result of {columns} columns; at most {MAX_COLUMNS} are possible", offset=5)
    if parameters:
        raise ProtocolError(f"the server reports {parameters} parameters of a statement that has none", offset=7)
    return Prepared(statement, columns)


def _definitions(count: int) -> Generator[None, bytes, tuple[ResultColumn, ...]]:
    columns: list[ResultColumn] = []
    while len(columns) < count:
        columns.append(parse_column((yield)))
    _end_of_columns((yield))
    return tuple(columns)


def _end_of_columns(payload: Buffer) -> None:
    if payload[:1] == bytes((ERR,)):
        _refuse(payload)
    if not is_eof(payload) or not isinstance(parse_reply(payload), EofPacket):
        raise ProtocolError("no EOF packet after the columns of a result", offset=0)


def _refuse(payload: Buffer) -> None:
    reply = parse_reply(payload)
    if isinstance(reply, ErrPacket):
        raise ErrorReply(reply)
