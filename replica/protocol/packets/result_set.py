"""Reply to one statement: from packets to rows of text.

In: payloads in order, each sent into the generator `read_reply()`. Out: a `Reply`, the rows of the first result and the
session's status. The generator stores nothing of a packet before it arrives, so the reader of packets bounds the
memory.

Refused: a request for a local file, more columns than a table can have, rows of another width, and any other packet.
Text that is not UTF-8, the connection's character set, is refused too. An ERR packet raises an `ErrorReply`, which the
caller handles.

Source: the client/server protocol's Text Resultset, without CLIENT_DEPRECATE_EOF.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.packets.packets import EOF, ERR, OK, EofPacket, ErrPacket, parse_reply
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Generator

    from replica.protocol.packets.packets import OkPacket

MAX_COLUMNS: Final = 4096
"""Maximum number of columns of a table and of a result in every server (MAX_FIELDS in sql/unireg.h)."""
_MORE_RESULTS: Final = 0x0008  # SERVER_MORE_RESULTS_EXISTS
_LOCAL_INFILE: Final = 0xFB
_NULL: Final = 0xFB
_EOF_MAX_LENGTH: Final = 9  # a row whose first value has that prefix is longer

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
