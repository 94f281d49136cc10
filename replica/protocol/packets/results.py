"""Results of statements: rows of text, and prepared statements.

In: payloads in order, each sent into the generator `read_reply()`. Out: a `Reply`, the rows of the first result and the
session's status. The generator stores nothing of a packet before it arrives, so the reader of packets bounds the
memory.

Refused: a request for a local file, more columns than a table can have, rows of another width, and any other packet.
Text that is not UTF-8, the connection's character set, is refused too. An ERR packet raises an `ErrorReply`, which the
caller handles.

Source: the client/server protocol's Text Resultset, without CLIENT_DEPRECATE_EOF.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ProtocolError
from replica.protocol.packets.packets import EOF, ERR, OK, EofPacket, ErrPacket, is_eof, parse_reply
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Generator

    from replica.protocol.packets.packets import OkPacket

MAX_COLUMNS: Final = 4096
"""Maximum number of columns of a table and of a result in every server (MAX_FIELDS in sql/unireg.h)."""
_MORE_RESULTS: Final = 0x0008  # SERVER_MORE_RESULTS_EXISTS
_LOCAL_INFILE: Final = 0xFB
_NULL: Final = 0xFB
_EOF_MAX_LENGTH: Final = 9  # a row whose first value begins with 0xFE is longer

Row = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply to one statement.

    `rows` are those of the first result, or none if it has no rows. `status` holds the server's flags after the last
    result.
    """

    rows: list[Row]
    status: int


class ErrorReply(Exception):  # noqa: N818  (the server's answer, which its receiver turns into an error)
    """An ERR packet of the server."""

    def __init__(self, packet: ErrPacket) -> None:
        super().__init__(packet.message)
        self.packet = packet


def read_reply() -> Generator[None, bytes, Reply]:
    """Consume payloads until the statement is answered.

    Raises:
        ErrorReply: an ERR packet, also in the middle of rows.
        ProtocolError: the reply is refused, see the module docstring.
    """
    rows, status = yield from _result()
    while status & _MORE_RESULTS:
        _, status = yield from _result()
    return Reply(rows, status)


def _result() -> Generator[None, bytes, tuple[list[Row], int]]:
    payload = yield
    kind = payload[0] if payload else ERR
    if kind == _LOCAL_INFILE:
        raise ProtocolError(
            "the server asks for a file of this machine in reply to a statement; the request is refused",
            hint="No MariaDB server asks a replica for a file: find out what listens at that address.",
        )
    if kind in (OK, EOF, ERR):
        return [], _ending(payload).status
    cursor = Cursor(payload)
    columns = cursor.lenenc()
    if columns > MAX_COLUMNS or cursor:
        raise ProtocolError(f"a result of {columns} columns; at most {MAX_COLUMNS} are possible", offset=0)
    for _ in range(columns):
        _refuse_errors((yield))  # a definition, which is not needed: all values arrive as text
    _ending((yield))
    rows: list[Row] = []
    while True:
        payload = yield
        if payload[0] == ERR or (payload[0] == EOF and len(payload) < _EOF_MAX_LENGTH):
            return rows, _ending(payload).status
        rows.append(_row(payload, columns))


def _refuse_errors(payload: bytes) -> None:
    if payload[:1] == bytes((ERR,)):
        _ending(payload)


def _ending(payload: Buffer) -> OkPacket | EofPacket:
    reply = parse_reply(payload)
    if isinstance(reply, ErrPacket):
        raise ErrorReply(reply)
    return reply


def _row(payload: Buffer, columns: int) -> Row:
    cursor = Cursor(payload)
    values: list[str | None] = []
    for _ in range(columns):
        if cursor and cursor.peek_rest()[0] == _NULL:
            cursor.skip(1)
            values.append(None)
        else:
            values.append(_text(cursor, len(values) + 1))
    if cursor:
        raise ProtocolError(f"{cursor.remaining} bytes after the last value of a row", offset=cursor.offset)
    return tuple(values)


def _text(cursor: Cursor, number: int) -> str:
    """Return the value of column `number`, counted from 1."""
    length, start = cursor.lenenc(), cursor.offset
    data = cursor.take(length)
    try:
        return str(data, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"the text of column {number} of an answer is not UTF-8, although the session is set to UTF-8",
            offset=start + error.start,
            hint="Look for a proxy that changes the character set. Look also for names or texts on the server that are "
            "not stored in their declared character set.",
        ) from None


# The generators receive the payloads in order and store nothing of a packet before it arrives. The caller reads the
# rows after the columns, packet by packet. A statement with parameters, too many columns, and a request for a local
# file are refused. An ERR packet raises an `ErrorReply`.
#
# Source: MariaDB 10.11, sql/sql_prepare.cc (send_prep_stmt, mysql_stmt_execute_common) and sql/protocol.cc
# (Protocol::send_result_set_metadata, Protocol_text::store_field_metadata). The login asks for neither
# CLIENT_DEPRECATE_EOF nor MariaDB's extended metadata.


_STMT_PREPARE: Final = 0x16
_STMT_EXECUTE: Final = 0x17
_STMT_CLOSE: Final = 0x19
_NO_CURSOR: Final = 0
_ITERATIONS: Final = 1  # "must be 1" since 4.1
_DEFINITION: Final = struct.Struct(
    "<"
    "B"  # length of the following fields, 12
    "H"  # charset    collation id; 63 for columns without text
    "I"  # length     maximum length of a value in bytes
    "B"  # type       ColumnType, without the codes that only binlogs use
    "H"  # flags
    "B"  # decimals
    "H"  # unused
)
_DEFINED_BYTES: Final = 12


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
        # The server sends the columns again before the rows, and only that second list is current.
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
    """Check a packet, among rows, that is not a row; return normally if it ends the result.

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
