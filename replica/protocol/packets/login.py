"""Packets of a login, from the greeting to the last AuthMoreData, as bytes.

Source: the server's sql/sql_acl.cc (send_server_handshake_packet, parse_client_handshake_packet,
send_plugin_request_packet), 10.11 and 11.8, and the client/server protocol's Protocol::HandshakeV10 and
HandshakeResponse41.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.packets.packets import EOF
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTH_MORE_DATA: Final = 0x01
OLD_PASSWORD_PLUGIN: Final = "mysql_old_password"  # noqa: S105  (a name)
"""Plugin of a switch request without a name, from before plugins (sql/sql_acl.cc: send_plugin_request_packet)."""
MAX_PACKET_BYTES: Final = 1 << 24
"""Packet size in the response. Servers treat it as information only."""
_LENENC_16: Final = 0xFB
_GREETING_VERSION: Final = 10
_SCRAMBLE_HEAD: Final = 8
_SCRAMBLE_TAIL: Final = 12
_GREETING_FILLER: Final = 10


class Capability(IntFlag):
    """Capability flags that a replica uses."""

    CLIENT_MYSQL = 1
    """The client has no extended capabilities. MariaDB's servers do not set this flag, because they have some."""
    LONG_FLAG = 1 << 2
    COMPRESS = 1 << 5
    PROTOCOL_41 = 1 << 9
    SSL = 1 << 11
    TRANSACTIONS = 1 << 13
    SECURE_CONNECTION = 1 << 15
    MULTI_RESULTS = 1 << 17
    PLUGIN_AUTH = 1 << 19
    CONNECT_ATTRS = 1 << 20
    PLUGIN_AUTH_LENENC_CLIENT_DATA = 1 << 21


NEEDED: Final = (
    Capability.LONG_FLAG
    | Capability.PROTOCOL_41
    | Capability.TRANSACTIONS
    | Capability.SECURE_CONNECTION
    | Capability.MULTI_RESULTS
    | Capability.PLUGIN_AUTH
    | Capability.CONNECT_ATTRS
    | Capability.PLUGIN_AUTH_LENENC_CLIENT_DATA
)
"""Capabilities that every server since MariaDB 10.0 has (measured on 10.5, 10.11 and 11.8)."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """First packet of a server: its version, its capabilities, and the data with which the first plugin begins."""

    version: str
    thread_id: int
    scramble: bytes
    capabilities: int
    status: int
    plugin: str


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """A server's request for another plugin, with the data with which the plugin begins."""

    plugin: str
    data: bytes


def parse_greeting(payload: Buffer) -> Greeting:
    """Parse the first packet of a server.

    Raises:
        ProtocolError: the packet is not a greeting of protocol version 10.
    """
    cursor = Cursor(payload)
    if (protocol := cursor.u8()) != _GREETING_VERSION:
        raise ProtocolError(f"a greeting of protocol version {protocol}, which is not {_GREETING_VERSION}", offset=0)
    version, end, _ = bytes(cursor.peek_rest()).partition(b"\0")
    if not end:
        raise ProtocolError("the server's version in the greeting does not end", offset=1)
    cursor.skip(len(version) + 1)
    thread_id = cursor.u32()
    scramble = bytes(cursor.take(_SCRAMBLE_HEAD))
    cursor.skip(1)
    capabilities = cursor.u16()
    cursor.skip(1)  # the server's default collation
    status = cursor.u16()
    capabilities |= cursor.u16() << 16
    length = cursor.u8()
    cursor.skip(_GREETING_FILLER)
    plugin = b""
    if capabilities & Capability.PLUGIN_AUTH:
        scramble += bytes(cursor.take(max(_SCRAMBLE_TAIL, length - _SCRAMBLE_HEAD - 1)))
        cursor.nul()
        # Some servers leave out the zero byte after the name.
        plugin = bytes(cursor.rest()).partition(b"\0")[0]
    said = (version.decode("utf-8", "replace"), plugin.decode("utf-8", "replace"))
    return Greeting(said[0], thread_id, scramble, capabilities, status, said[1])


def ssl_request(capabilities: Capability, charset: int) -> bytes:
    """Return the packet that asks the server to begin TLS (sql/sql_acl.cc: parse_client_handshake_packet, 10.11).

    The handshake response follows inside TLS.
    """
    head = capabilities.to_bytes(4, "little") + MAX_PACKET_BYTES.to_bytes(4, "little")
    return head + bytes((charset,)) + bytes(23)


def handshake_response(
    capabilities: Capability, charset: int, *, user: str, answer: bytes, plugin: str, attributes: Mapping[str, str]
) -> bytes:
    """Return the packet with the account and the first plugin's answer.

    `attributes` are shown in the server's performance schema.
    """
    named = b"".join(_counted(key.encode()) + _counted(value.encode()) for key, value in attributes.items())
    return b"".join(
        (
            ssl_request(capabilities, charset),
            user.encode().replace(b"\0", b"") + b"\0",
            _counted(answer),
            plugin.encode() + b"\0",
            _counted(named),
        )
    )


def parse_switch(payload: Buffer) -> SwitchRequest:
    """Parse an AuthSwitchRequest: 0xFE, the plugin's name, its data.

    Raises:
        ProtocolError: the packet is another one, or the name has no end.
    """
    cursor = Cursor(payload)
    if cursor.u8() != EOF:
        raise ProtocolError("not an AuthSwitchRequest", offset=0)
    rest = bytes(cursor.rest())
    if not rest:
        return SwitchRequest(OLD_PASSWORD_PLUGIN, b"")
    name, end, data = rest.partition(b"\0")
    if not end:
        raise ProtocolError("the plugin name of an AuthSwitchRequest does not end", offset=1)
    return SwitchRequest(name.decode("utf-8", "replace"), data)


def _counted(data: bytes) -> bytes:
    """Return the bytes after their length-encoded length. No text of a login is longer than 64 KiB."""
    length = len(data)
    return (bytes((length,)) if length < _LENENC_16 else b"\xfc" + length.to_bytes(2, "little")) + data
