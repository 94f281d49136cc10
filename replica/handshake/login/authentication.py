"""Conversation of a login, from the server's greeting to the final OK. Plugins answer, and the server may switch
plugins.

No I/O: `authenticate()` is a generator that yields payloads to send and receives the server's payloads. It yields None
if there is nothing to send and the next payload is expected. The caller handles an ERR packet, which ends the
generator.

Source: the server's sql/sql_acl.cc (its server_mpvio functions) and Connector/C's my_auth.c (run_plugin_auth).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import ProtocolError
from replica.handshake.plugins import plugin_for_greeting, plugin_named
from replica.protocol.packets.login import AUTH_MORE_DATA, parse_switch
from replica.protocol.packets.packets import EOF, OK, OkPacket, parse_reply

if TYPE_CHECKING:
    from replica.handshake.plugins import Plugin, Secret

MAX_ROUNDS = 32
"""Maximum number of packets. An account has a handful of plugins of at most three packets each; a hostile server must
not continue forever.
"""


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The plugin that logged us in, and the text of the server's OK packet."""

    plugin: Plugin
    info: bytes


Conversation = Generator[bytes | None, bytes, Authenticated]
Respond = Callable[[str, bytes], bytes]
"""A plugin's name and its first answer -> the whole HandshakeResponse."""


def authenticate(greeted_with: str, scramble: bytes, secret: Secret, respond: Respond) -> Conversation:
    """Log in: yield the payloads to send, and return the plugin that the server accepted.

    Args:
        greeted_with: the plugin named in the greeting.
        scramble: the greeting's 20 random bytes.
        secret: the account's password.
        respond: wraps the first answer.

    Returns:
        The plugin, and the text of the server's OK packet.

    Raises:
        AuthenticationError: the server asks for a plugin that is unknown or that would expose the password.
        ProtocolError: the server's packets are no valid login.
    """
    plugin = plugin_for_greeting(greeted_with, secret)
    payload = yield respond(plugin.name, plugin.begin(scramble))
    for _ in range(MAX_ROUNDS):
        kind = payload[0] if payload else -1
        if kind == AUTH_MORE_DATA:
            payload = yield plugin.more(payload[1:])
        elif kind == EOF:
            switch = parse_switch(payload)
            plugin = plugin_named(switch.plugin, secret)
            payload = yield plugin.begin(switch.data)
        elif kind == OK:
            reply = parse_reply(payload)
            return Authenticated(plugin, reply.info if isinstance(reply, OkPacket) else b"")
        else:
            raise ProtocolError(f"the server answered the login with a packet of kind 0x{kind & 0xFF:02x}", offset=0)
    raise ProtocolError(f"the server did not complete the login within {MAX_ROUNDS} packets")
