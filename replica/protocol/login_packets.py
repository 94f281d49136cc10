"""The packets of a login, from SSLRequest to the last AuthMoreData, as bytes.

Source: the server's sql/sql_acl.cc (parse_client_handshake_packet, send_plugin_request_packet) and the client/server
protocol's Protocol::HandshakeResponse41.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from typing import TYPE_CHECKING, Final

from replica.errors import ProtocolError
from replica.protocol.packets import EOF
from replica.protocol.wire import Buffer, Cursor

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTH_MORE_DATA: Final = 0x01
OLD_PASSWORD_PLUGIN: Final = "mysql_old_password"  # noqa: S105  (a name)
"""What a request without a name stands for, from before plugins."""
MAX_PACKET_BYTES: Final = 1 << 24
"""What the response says of itself; servers take it for information."""
_LENENC_16: Final = 0xFB


class Capability(IntFlag):
    """The capability flags that a replica uses."""

    CLIENT_MYSQL = 1
    """We send no extended capabilities. (MariaDB's servers leave it out because they have some.)"""
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
"""Every server since MariaDB 10.0 has them."""


@dataclass(frozen=True, slots=True)
class SwitchRequest:
    """The server wants another plugin, and gives the data it begins with."""

    plugin: str
    data: bytes


def ssl_request(capabilities: Capability, charset: int) -> bytes:
    """What asks the server to begin TLS; the response follows inside."""
    head = capabilities.to_bytes(4, "little") + MAX_PACKET_BYTES.to_bytes(4, "little")
    return head + bytes((charset,)) + bytes(23)


def handshake_response(
    capabilities: Capability, charset: int, *, user: str, answer: bytes, plugin: str, attributes: Mapping[str, str]
) -> bytes:
    """Who we are, and the first plugin's answer. `attributes` are shown in the server's performance schema."""
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
    """An AuthSwitchRequest: 0xFE, the plugin's name, its data. ProtocolError for a name that does not end."""
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
    """The bytes behind their length-encoded length; nothing in a login is longer than 64 KiB."""
    length = len(data)
    return (bytes((length,)) if length < _LENENC_16 else b"\xfc" + length.to_bytes(2, "little")) + data
