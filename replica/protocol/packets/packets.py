"""Packets of the client/server protocol: from bytes of a connection to payloads, and back.

`PacketSplitter.feed` takes bytes in pieces of any size and yields whole payloads. A packet of 0xFFFFFF bytes is joined
with the next one, even if that is empty. Sequence ids are not checked, because a server that expects semi-synchronous
acknowledgements restarts them in mid-stream. The checksums of the events protect the content. Payloads above a limit
are refused before their bytes are stored.

Source: the server's sql/net_serv.cc (my_net_write, which cuts payloads into packets), sql/protocol.cc (net_send_ok,
net_send_eof, net_send_error_packet) and sql/semisync_master.cc (flush_net, which restarts the ids), 10.11 and 11.8.
Measured on both with payloads around one and two times 0xFFFFFF bytes, and over a dump of 408 packets.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError, ProtocolError
from replica.protocol.constants import FIRST_POSITION, MAX_EVENT_BYTES, Command
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKET_HEADER_LENGTH: Final = 4
MAX_PIECE: Final = 0xFFFFFF
"""Maximum payload of one packet in bytes. A packet of exactly this length is continued by the next."""
MAX_PAYLOAD: Final = MAX_EVENT_BYTES + 64
"""Maximum size of a payload in bytes.

The limit covers the largest event of a server, the status bytes before the event, and a reserve for further bytes of
newer servers. The largest event has MAX_MAX_ALLOWED_PACKET bytes (sql/sql_repl.cc: mysql_binlog_send sets its limit to
this number, 10.11 and 11.8).
"""

OK, EOF, ERR = 0x00, 0xFE, 0xFF
"""First byte of a reply. In a dump, a payload that starts with 0x00 is an event, not an OK packet (measured on 10.11
and 11.8).
"""
_EOF_MAX_LENGTH: Final = 9
"""Length in bytes below which a payload that starts with 0xFE is an EOF packet.

0xFE also starts a length-encoded integer of 9 bytes. (The server's own replica tests for less than 8, sql/slave.cc:
read_event, 10.11. An event is never that short, so both are right.)
"""
MAX_MESSAGE: Final = 1024
"""Maximum size of an error message that is kept. Servers cut theirs at 512 bytes (MYSQL_ERRMSG_SIZE), and a longer
message would flood a log.
"""


class PacketSplitter:
    """Splitter of a byte stream into payloads. It keeps fed bytes until a call takes their payloads."""

    def __init__(self, max_payload: int = MAX_PAYLOAD) -> None:
        self.max_payload = max_payload
        self._chunks: deque[memoryview] = deque()
        self._header = bytearray()
        self._payload = bytearray()
        self._missing: int | None = None  # bytes of the current packet that have not arrived; None while in its header
        self._continued = False  # whether the current packet has the maximum length

    def feed(self, chunk: Buffer) -> Iterator[memoryview]:
        """Yield the payloads that are complete now.

        A payload may be a view into `chunk`. Use or copy the payload before you reuse that buffer.
        """
        if len(chunk):
            self._chunks.append(memoryview(chunk))
        return self._payloads()

    @property
    def in_payload(self) -> bool:
        """Whether bytes of an incomplete payload are held. If the connection ends now, it was cut."""
        return bool(self._chunks or self._header or self._payload or self._missing is not None or self._continued)

    def _payloads(self) -> Iterator[memoryview]:
        while self._chunks:
            chunk = self._chunks.popleft()
            if self._missing is None:
                chunk = self._read_header(chunk)
                if self._missing is None:
                    continue
            missing: int = self._missing
            piece, rest = chunk[:missing], chunk[missing:]
            self._missing = missing - len(piece)
            if rest:
                self._chunks.appendleft(rest)
            if self._missing or self._continued or self._payload:
                self._payload += piece
            if self._missing:
                continue
            self._missing = None
            if not self._continued:
                payload, self._payload = self._payload, bytearray()
                yield memoryview(payload) if payload else piece

    def _read_header(self, chunk: memoryview) -> memoryview:
        """Set `_missing` if the header is complete; return the rest of the chunk."""
        wanted = PACKET_HEADER_LENGTH - len(self._header)
        self._header += chunk[:wanted]
        if len(self._header) == PACKET_HEADER_LENGTH:
            length = int.from_bytes(self._header[:3], "little")
            self._header.clear()
            if len(self._payload) + length > self.max_payload:
                raise ProtocolError(
                    f"a payload of more than {self.max_payload} bytes",
                    hint="No server sends one: the bytes are not the client/server protocol, or were damaged.",
                )
            self._missing = length
            self._continued = length == MAX_PIECE
        return chunk[wanted:]


def pack(payload: Buffer, sequence_id: int = 0) -> bytes:
    """Return the payload as one or more packets, numbered from `sequence_id` modulo 256."""
    view = memoryview(payload)
    pieces: list[Buffer] = []
    for number, start in enumerate(range(0, len(view) + 1, MAX_PIECE)):
        piece = view[start : start + MAX_PIECE]
        pieces += [len(piece).to_bytes(3, "little"), bytes(((sequence_id + number) & 0xFF,)), piece]
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class OkPacket:
    affected_rows: int
    last_insert_id: int
    status: int
    warnings: int
    info: bytes


@dataclass(frozen=True, slots=True)
class EofPacket:
    """End of a dump that does not wait, that reached UNTIL, or whose server shuts down."""

    warnings: int
    status: int


@dataclass(frozen=True, slots=True)
class ErrPacket:
    """Error that ends the command, and a dump with its connection."""

    code: int
    sqlstate: str
    message: str


def is_eof(payload: Buffer) -> bool:
    """Return True if a payload is an EOF packet, which ends a dump that does not wait for more."""
    return len(payload) < _EOF_MAX_LENGTH and payload[:1] == bytes((EOF,))


def parse_reply(payload: Buffer) -> OkPacket | EofPacket | ErrPacket:
    """Parse the answer to a command without result rows, or the packet that ends a dump.

    Raises:
        ProtocolError: the payload is not OK, EOF or ERR.
    """
    cursor = Cursor(payload)
    kind = cursor.u8()
    if kind == ERR:
        return _err(cursor)
    if is_eof(payload):
        # Packets to very old clients lack the counters.
        return EofPacket(cursor.u16(), cursor.u16()) if cursor else EofPacket(0, 0)
    if kind == OK:
        return OkPacket(cursor.lenenc(), cursor.lenenc(), cursor.u16(), cursor.u16(), bytes(cursor.rest()))
    raise ProtocolError(f"a reply that starts with 0x{kind:02x} is not OK, EOF or ERR", offset=0)


def _err(cursor: Cursor) -> ErrPacket:
    code = cursor.u16()
    sqlstate = ""
    # A server that refuses the connection before the login sends no SQLSTATE (sql/protocol.cc: net_send_error_packet
    # writes it only for clients that announced protocol 4.1).
    if cursor.remaining >= 6 and cursor.peek_rest()[0] == ord("#"):
        sqlstate = bytes(cursor.take(6))[1:].decode("ascii", "replace")
    # Invalid bytes in a message must not replace the error by another one.
    message = bytes(cursor.rest()).decode("utf-8", "replace")
    return ErrPacket(code, sqlstate, message if len(message) <= MAX_MESSAGE else f"{message[:MAX_MESSAGE]} ...")


MAX_REGISTERED_TEXT: Final = 60
"""Maximum length in bytes of a text that we register. The server's HOSTNAME_LENGTH and USERNAME_LENGTH allow more, but
a longer text is a mistake.
"""

_DUMP: Final = struct.Struct(
    "<"
    "B"  # COM_BINLOG_DUMP
    "I"  # position       ignored in GTID mode
    "H"  # flags          DumpFlag
    "I"  # server_id      of the replica
)


def com_query(sql: str) -> bytes:
    """Return the COM_QUERY payload that runs a statement."""
    return bytes((Command.QUERY,)) + sql.encode()


def com_register_slave(
    server_id: int, *, host: str = "", user: str = "", password: str = "", port: int = 0, master_id: int = 0
) -> bytes:
    """Return the COM_REGISTER_SLAVE payload, which makes the replica visible in SHOW REPLICA HOSTS.

    Args:
        server_id: server id of the replica.
        host: name to show; if it is empty, the server shows the address of the connection.
        user: user to show.
        password: password to show. SHOW REPLICA HOSTS may print it to others, so never pass the account's own.
        port: port to show.
        master_id: server id of the primary; 0 if unknown.

    Raises:
        ConfigError: a text is longer than MAX_REGISTERED_TEXT.
    """
    texts = b"".join(_short_text(name, text) for name, text in (("host", host), ("user", user), ("password", password)))
    rank = 0  # unused by every server, but its bytes must be sent
    return b"".join(
        (struct.pack("<BI", Command.REGISTER_SLAVE, server_id), texts, struct.pack("<HII", port, rank, master_id))
    )


def _short_text(name: str, text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_REGISTERED_TEXT:
        raise ConfigError(f"the {name} to register has {len(data)} bytes; at most {MAX_REGISTERED_TEXT} are allowed")
    return bytes((len(data),)) + data


def com_binlog_dump(server_id: int, *, flags: int = 0, file: str = "", position: int = FIRST_POSITION) -> bytes:
    """Return the COM_BINLOG_DUMP payload, which starts the stream.

    In GTID mode (@slave_connect_state) the server ignores `file` and `position`. With `server_id` 0 the server never
    waits for more events.
    """
    return _DUMP.pack(Command.BINLOG_DUMP, position, flags, server_id) + file.encode()
