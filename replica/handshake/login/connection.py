"""Driver connection with our own login: TLS that never falls back to plain text, every plugin, compression.

In: a configuration and an endpoint. Out: a connection that has logged in. aiomysql's own login is not used, for these
reasons. It continues in plain text if the server offers no TLS, knows two plugins, and ends at a second change of
plugin. It does not compress, and does not verify a certificate through the password. It accepts replies of any size,
and sends local files to a server that requests them.

Refused: a server without TLS or compression if they are configured; replies of more bytes than `expect` allows, before
they are read.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Callable, Generator
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError, ConfigError, PrerequisiteError, ProtocolError
from replica.handshake.login.compressed import compress
from replica.handshake.login.driver import CHARSET, Driver
from replica.handshake.plugins import SCRAMBLE_BYTES, Secret, plugin_for_greeting, plugin_named
from replica.protocol.packets.login import (
    AUTH_MORE_DATA,
    NEEDED,
    Capability,
    handshake_response,
    parse_greeting,
    parse_switch,
    ssl_request,
)
from replica.protocol.packets.packets import EOF, MAX_PAYLOAD, MAX_PIECE, OK, OkPacket, parse_reply

if TYPE_CHECKING:
    from replica.handshake.plugins import Plugin
    from replica.options.config import Endpoint, ReplicaConfig

# plugins.
#
# No I/O: `authenticate()` is a generator that yields payloads to send and receives the server's payloads. It yields
# None if there is nothing to send and the next payload is expected. The caller handles an ERR packet, which ends the
# generator.
#
# Source: the server's sql/sql_acl.cc (its server_mpvio functions) and Connector/C's my_auth.c (run_plugin_auth).


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


MAX_LOGIN_BYTES: Final = 256 << 10
"""Maximum number of bytes that a server may send during the login.

A server sends about a dozen packets; the largest is a public key or an error.
"""

PACKET_COST: Final = 64
"""Number of bytes that each packet counts beside its length: the memory that Python needs for a row of one byte."""


class DriverConnection(Driver):
    """One connection. `open()` connects and logs in. The driver never sees the password."""

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
        """Set the number of bytes that the server may send until the next call."""
        self._most = self._left = most

    @property
    def tls(self) -> str:
        """Version and cipher of TLS; '' without TLS."""
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
        # An attacker may have put bytes after the greeting. They must not count as received inside TLS, so the new
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
        """Return the next payload.

        Sequence ids are not checked, because the server counts them differently inside frames.

        A payload longer than `longest` bytes is cut there, and the connection is closed.

        Raises:
            ProtocolError: the payload is empty, or exceeds the number of bytes that `expect` allows.
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
            raise ProtocolError("an empty packet in place of a reply")
        return bytes(payload)

    def _allow(self, length: int) -> None:
        self._left -= length + PACKET_COST
        if self._left < 0:
            self.close()
            raise ProtocolError(
                f"a reply of more than {self._most} bytes",
                hint="No MariaDB server sends so much here. Check which program listens there.",
            )


def secret_of(config: ReplicaConfig, endpoint: Endpoint) -> Secret:
    """Return the password, and whether the connection to `endpoint` keeps it private.

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
    # Verification through the password identifies the server only after the login, too late for a password in clear.
    private = bool(endpoint.unix_socket) or mode not in ("disabled", "verify-password")
    return Secret(password, private=private, public_key=config.server_public_key)


# TLS context of a connection, for the five modes and the certificates. No mode falls back to plain text.
#
# Source: measured on 10.5, 10.11 and 11.8. A server without TLS leaves out its capability flag, and a man in the middle
# can remove the flag. The login above refuses such a server, while the driver would continue in plain text.


def tls_context(config: ReplicaConfig) -> ssl.SSLContext | None:
    """Return the TLS context for `config.tls_mode`, None for disabled.

    `required` encrypts and verifies nothing. `verify-ca` verifies the signer of the certificate, and `verify-identity`
    also the host name. Without tls_ca the system's authorities are trusted. `verify-password` accepts any certificate
    here; `check_certificate` verifies it after the login.

    Raises:
        ConfigError: a certificate or key file cannot be read or is invalid.
    """
    mode = config.tls_mode
    if mode == "disabled":
        return None
    try:
        if mode in ("required", "verify-password"):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        else:
            context = ssl.create_default_context(cafile=config.tls_ca)
            context.check_hostname = mode == "verify-identity"
        # Independent of the machine's OpenSSL settings: every server tested (10.5, 10.11, 11.8) supports 1.2, and older
        # versions of TLS can be broken.
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if config.tls_cert and config.tls_key:
            # Without a password here, OpenSSL asks a terminal for the passphrase of a protected key, and waits.
            context.load_cert_chain(config.tls_cert, config.tls_key, password=b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(str(path) for path in (config.tls_ca, config.tls_cert, config.tls_key) if path)
        raise ConfigError(f"a TLS file cannot be used ({files}): {error}.", hint="PEM files are expected.") from None
    return context


# Servers from 11.4 on make their own certificate and prove it through the password: the final OK packet has a digest of
# the authentication, the scramble and the certificate. A man in the middle does not know the password and cannot
# compute it. A missing digest is refused too: the server lacks the feature, or the password is empty.
#
# Source: the server's sql_acl.cc (make_ssl_info) and Connector/C's my_auth.c.

_DIGEST_CHARACTERS = 64

_DIGEST_HEAD = bytes((1 + _DIGEST_CHARACTERS, 1))
"""First two bytes of the digest text: its remaining length, and its kind (SHA-256)."""

_OTHER_WAY = "Use tls=verify-identity with the server's certificate authority as tls_ca."


def check_certificate(done: Authenticated, scramble: bytes, certificate: bytes) -> None:
    """Compare the server's digest with the one that the certificate requires.

    Args:
        done: the finished login, whose OK packet has the server's digest.
        scramble: random bytes of the server's greeting.
        certificate: the server's TLS certificate in DER.

    Raises:
        AuthenticationError: the certificate does not belong to a server that knows the password, or the comparison is
            impossible.
    """
    stored = done.plugin.stored()
    if stored is None:
        raise AuthenticationError(
            f"tls=verify-password cannot work: an account with {done.plugin.name}, or without a password, proves "
            "nothing about the server.",
            hint=f"Use an account with ed25519, parsec or mysql_native_password. {_OTHER_WAY}",
        )
    claimed = _digest(done.info)
    if claimed is None:
        raise AuthenticationError(
            "tls=verify-password cannot work: this server does not vouch for its certificate (MariaDB 11.4+ does).",
            hint=_OTHER_WAY,
        )
    fingerprint = sha256(certificate).digest()
    expected = sha256(stored + scramble[:SCRAMBLE_BYTES] + fingerprint).hexdigest().upper()
    if not hmac.compare_digest(claimed, expected.encode()):
        raise AuthenticationError(
            "the TLS certificate is not that of the server that knows the password: the connection is intercepted.",
            hint=f"A proxy that terminates TLS looks the same. {_OTHER_WAY}",
        )


def _digest(info: bytes) -> bytes | None:
    head, digest = info[: len(_DIGEST_HEAD)], info[len(_DIGEST_HEAD) :]
    return digest if head == _DIGEST_HEAD and len(digest) == _DIGEST_CHARACTERS else None
