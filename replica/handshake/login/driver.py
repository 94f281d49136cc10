"""Adapter to aiomysql, PyMySQL and asyncio. Only this module uses their private names, and it gives them public names.

In: an endpoint, and a subclass that handles the greeting. Out: packets in both directions, and finally the streams
without the driver. The driver opens the connection, counts packets, escapes values and sets autocommit. It calls three
private methods that we override, and we read or set seven of its private names. The test
tests/unit/handshake/login/test_driver.py lists all of these names, and what breaks if the driver changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pymysql.err
from aiomysql.connection import Connection
from pymysql.charset import charset_by_name
from pymysql.protocol import MysqlPacket

from replica.protocol.packets.packets import ERR, MAX_PAYLOAD, ErrPacket, parse_reply

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Mapping

    from replica.options.values import Endpoint

DriverError = pymysql.err.MySQLError
NotConnectedError = pymysql.err.InterfaceError

CHARSET: Final = charset_by_name("utf8mb4")


class Driver(Connection):
    """Driver connection whose subclass handles the greeting, logs in and reads packets."""

    _reader: Any
    _writer: Any

    def __init__(self, endpoint: Endpoint, user: str) -> None:
        super().__init__(
            host=endpoint.host or "localhost",
            port=endpoint.port or 3306,
            unix_socket=endpoint.unix_socket or None,
            user=user,
            charset=CHARSET.name,
            program_name="mariadb-replica",
            autocommit=True,
            conv={},
        )

    # -- methods that the driver calls -----------------------------------------------------------------------------

    async def _get_server_information(self) -> None:
        await self.greeted(await self.read_reply())

    async def _request_authentication(self) -> None:
        await self.log_in()

    async def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        return packet_type(await self.read_reply(), CHARSET.encoding)

    async def greeted(self, payload: bytes) -> None:
        """Handle the server's greeting, and set `server_status`, which `escape` needs."""
        raise NotImplementedError

    async def log_in(self) -> None:
        """Log in, from the greeting to the server's OK."""
        raise NotImplementedError

    async def read_payload(self, longest: int = MAX_PAYLOAD) -> bytes:
        """Return the next payload, at most `longest` bytes of it."""
        raise NotImplementedError

    # -- methods for a login ---------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect with TCP_NODELAY and keep-alive, log in, and set autocommit."""
        await self._connect()

    async def read_reply(self, longest: int = MAX_PAYLOAD) -> bytes:
        """Return the next payload; raise an ERR packet as the driver's error."""
        payload = await self.read_payload(longest)
        if payload[0] == ERR:
            reply = parse_reply(payload)
            assert isinstance(reply, ErrPacket)  # noqa: S101  (by its first byte)
            raise error_of(reply)
        return payload

    async def receive(self, count: int) -> bytes:
        """Read exactly `count` bytes; raise the driver's error if the connection ends before."""
        data: bytes = await self._read_bytes(count)
        return data

    def count_on(self, sequence_id: int) -> None:
        """Set the sequence id of the next written packet. Every command begins with 0."""
        self._next_seq_id = sequence_id & 0xFF

    @property
    def attributes(self) -> Mapping[str, str]:
        """Attributes of this program that the login sends to the server."""
        attributes: Mapping[str, str] = self._connect_attrs
        return attributes

    @property
    def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        """The reader and writer of the connection, or None after it is closed.

        A caller may replace them, for example by streams that add compression.
        """
        return None if self._writer is None else (self._reader, self._writer)

    @streams.setter
    def streams(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None) -> None:
        # Without streams the driver's __del__ closes nothing.
        self._reader, self._writer = streams or (None, None)

    @property
    def writer(self) -> asyncio.StreamWriter:
        """The writer of the connection.

        Raises:
            NotConnectedError: the connection is closed.
        """
        if self._writer is None:
            raise NotConnectedError("not connected")
        writer: asyncio.StreamWriter = self._writer
        return writer

    @property
    def transport(self) -> asyncio.Transport:
        """The transport under reader and writer."""
        transport: asyncio.Transport = self.writer.transport  # type: ignore[assignment]
        return transport


def error_of(packet: ErrPacket) -> pymysql.err.OperationalError:
    """Return the driver's error for an ERR packet. `refusals.translated` interprets it."""
    return pymysql.err.OperationalError(packet.code, packet.message, sqlstate=packet.sqlstate)


def unread(reader: asyncio.StreamReader) -> bytes:
    """Return the buffered bytes of a reader. asyncio cannot return them without waiting for more."""
    return bytes(reader._buffer)  # type: ignore[attr-defined]  # noqa: SLF001
