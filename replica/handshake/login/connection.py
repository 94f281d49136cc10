"""The driver's connection with a login of our own: TLS that never falls back, every plugin, compression.

In: a configuration and an endpoint. Out: a connection that has logged in. What aiomysql has of this is left out because
it goes on in plain text where the server offers no TLS, knows two plugins, stops at a second change of plugin, and
neither compresses nor checks a certificate through the password; and because it takes whatever a server says, as much
of it as comes, and sends it our files.

Refused: a server without TLS or compression when they are asked for; replies of more bytes than `expect` allows, before
they are read.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError, PrerequisiteError, ProtocolError
from replica.handshake.login.authentication import Authenticated, authenticate
from replica.handshake.login.certificate import check_certificate
from replica.handshake.login.compressed import compress
from replica.handshake.login.driver import CHARSET, Driver
from replica.handshake.login.tls import tls_context
from replica.handshake.plugins.plugin import SCRAMBLE_BYTES, Secret
from replica.protocol.packets.login import NEEDED, Capability, handshake_response, parse_greeting, ssl_request
from replica.protocol.packets.packets import MAX_PAYLOAD, MAX_PIECE

if TYPE_CHECKING:
    from replica.config import Endpoint, ReplicaConfig

MAX_LOGIN_BYTES: Final = 256 << 10
"""All that a server says before it lets us in: a dozen packets, the largest of them a public key or an error."""
PACKET_COST: Final = 64
"""Counted for each packet beside its bytes: what Python needs to keep a row of one byte."""


class DriverConnection(Driver):
    """One connection; `open()` makes it and logs in. The driver never sees the password."""

    def __init__(self, config: ReplicaConfig, endpoint: Endpoint) -> None:
        super().__init__(endpoint, config.user)
        self._config = config
        self._server_name = endpoint.host or "localhost"
        self._tls = tls_context(config)
        self._secret = secret_of(config, endpoint)
        self.plugin = ""
        self.compressed = False
        self.expect(MAX_LOGIN_BYTES)

    def expect(self, most: int) -> None:
        """Allow the server to say so many bytes from now on, until the next call."""
        self._most = self._left = most

    @property
    def tls(self) -> str:
        """Version and cipher of TLS, empty without."""
        channel = self._ssl_object()
        if channel is None:
            return ""
        cipher = channel.cipher()
        return f"{channel.version()} {cipher[0] if cipher else ''}".strip()

    def _ssl_object(self) -> ssl.SSLObject | None:
        found = self.transport.get_extra_info("ssl_object") if self.streams else None
        return found if isinstance(found, ssl.SSLObject) else None

    async def greeted(self, payload: bytes) -> None:
        self.greeting = parse_greeting(payload)
        self.server_status = self.greeting.status

    async def log_in(self) -> None:
        config, offered, wanted = self._config, Capability(self.greeting.capabilities), NEEDED
        if missing := wanted & ~offered:
            raise PrerequisiteError(f"the server lacks {missing.name}.", hint="Use MariaDB 10.5 or later.")
        wanted |= Capability.CLIENT_MYSQL
        if config.compress:
            if Capability.COMPRESS not in offered:
                raise PrerequisiteError(
                    "compress is asked for, but the server offers no compressed connections.", hint="Turn compress off."
                )
            wanted |= Capability.COMPRESS
        if self._tls is not None:
            if Capability.SSL not in offered:
                raise AuthenticationError(
                    "TLS is asked for, but the server offers none.",
                    hint="Set ssl_cert and ssl_key on the server, or tls=disabled if the network is trusted.",
                )
            wanted |= Capability.SSL
            await self._start_tls(self._tls, ssl_request(wanted, CHARSET.id))
        scramble = bytes(self.greeting.scramble[:SCRAMBLE_BYTES])
        done = await self._converse(scramble, wanted)
        self.plugin = done.plugin.name
        if config.tls_mode == "verify-password":
            check_certificate(done, scramble, self._certificate())
        if config.compress and self.streams:
            self.streams = compress(*self.streams)
            self.compressed = True

    async def _start_tls(self, context: ssl.SSLContext, request: bytes) -> None:
        self.write_packet(request)
        plain = self.transport
        # What an attacker may have put behind the greeting must not be read as if it had come inside TLS: the new
        # reader starts empty.
        plain.pause_reading()
        raw = plain.get_extra_info("socket").dup()
        plain.close()
        self.streams = await asyncio.open_connection(sock=raw, ssl=context, server_hostname=self._server_name)

    async def _converse(self, scramble: bytes, capabilities: Capability) -> Authenticated:
        user, attributes = self._config.user, self.attributes

        def respond(plugin: str, answer: bytes) -> bytes:
            return handshake_response(
                capabilities, CHARSET.id, user=user, answer=answer, plugin=plugin, attributes=attributes
            )

        conversation = authenticate(self.greeting.plugin, scramble, self._secret, respond)
        answer = next(conversation)
        try:
            while True:
                if answer is not None:
                    self.write_packet(answer)
                answer = conversation.send(await self.read_reply())
        except StopIteration as done:
            result: Authenticated = done.value
            return result

    def _certificate(self) -> bytes:
        channel = self._ssl_object()
        certificate = channel.getpeercert(binary_form=True) if channel else None
        if not certificate:
            raise AuthenticationError("the server showed no certificate.", hint="Use a server with ssl_cert set.")
        return certificate

    async def read_payload(self, longest: int = MAX_PAYLOAD) -> bytes:
        """Return the next payload, whatever its sequence id: inside frames the server counts in its own way.

        One that is longer than `longest` is cut there, and the connection closed.

        Raises:
            ProtocolError: it is empty, or longer than what is left of what we expect.
        """
        payload = bytearray()
        length = MAX_PIECE
        try:
            while length == MAX_PIECE:
                header = await self.receive(4)
                length = int.from_bytes(header[:3], "little")
                self.count_on(header[3] + 1)
                rest = longest - len(payload)
                self._allow(min(length, rest))
                payload += await self.receive(min(length, rest))
                if length > rest:
                    self.close()
                    break
        except asyncio.CancelledError:
            self.close()
            raise
        if not payload:
            self.close()
            raise ProtocolError("an empty packet where a reply is expected")
        return bytes(payload)

    def _allow(self, length: int) -> None:
        self._left -= length + PACKET_COST
        if self._left < 0:
            self.close()
            raise ProtocolError(
                f"a reply of more than {self._most} bytes",
                hint="No MariaDB server says so much here: find out what listens there.",
            )


def secret_of(config: ReplicaConfig, endpoint: Endpoint) -> Secret:
    """Return the password, and whether a connection to `endpoint` keeps what is sent to itself.

    Raises:
        AuthenticationError: the certificate is to be verified through a password that is empty.
        ConfigError: the password's file cannot be read.
    """
    password, mode = config.read_password().encode(), config.tls_mode
    if mode == "verify-password" and not password:
        raise AuthenticationError(
            "tls=verify-password cannot work with an empty password.",
            hint="Give the account a password, or use tls=verify-identity with tls_ca.",
        )
    # Through the password the server is known only after the login, too late for a password in clear.
    private = bool(endpoint.unix_socket) or mode not in ("disabled", "verify-password")
    return Secret(password, private=private, public_key=config.server_public_key)
