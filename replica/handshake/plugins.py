"""Authentication plugins, and their table by the name that a server asks for.

A `Plugin` turns the server's challenges into payloads, without I/O; `plugin_named` returns the plugin of a name. A
payload contains the password itself only if `Secret.private` says that no one can read it on the way. A plugin without
a safe answer raises an error and never falls back to another one.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from hashlib import pbkdf2_hmac, sha1, sha256, sha512
from typing import TYPE_CHECKING, ClassVar, Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from nacl.bindings import (
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)
from nacl.signing import SigningKey

from replica.errors import AuthenticationError, ConfigError, ProtocolError

if TYPE_CHECKING:
    from pathlib import Path

SCRAMBLE_BYTES = 20
"""Number of random bytes in the server's greeting (SCRAMBLE_LENGTH). A NUL may follow them."""
NONCE_BYTES = 32
"""Number of bytes that the client signs with ed25519 and parsec."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A password as UTF-8 bytes, the form in which a client sends it."""

    password: bytes = field(repr=False)
    private: bool
    """Whether the connection is encrypted or local. The configured `tls` decides how far the server is verified."""
    public_key: Path | None = None
    """The server's RSA key, from a trusted source."""


class Plugin(ABC):
    """Authentication plugin during one login. The server chooses the plugin, and may switch to another one."""

    name: ClassVar[str]
    """Name of the plugin in the server's greeting and in an AuthSwitchRequest."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    @abstractmethod
    def begin(self, data: bytes) -> bytes:
        """Return the first answer, to the data of the greeting or of an AuthSwitchRequest.

        Raises:
            AuthenticationError: the answer would expose the password.
            ProtocolError: the data does not fit this plugin.
        """

    def more(self, data: bytes) -> bytes | None:
        """Return the answer to further data of the server (AuthMoreData); None if it expects no answer."""
        raise ProtocolError(f"the server continues with {self.name}, which ends after one answer ({len(data)} bytes)")

    def stored(self) -> bytes | None:
        """Return the server's stored form of the password (`hash_password_bin`), or None if that form is no secret.

        A server of 11.4 or later sends a digest of this stored form and its certificate. Only a server that knows the
        account can compute the digest.
        """
        return None

    def _scramble(self, data: bytes, length: int = SCRAMBLE_BYTES) -> bytes:
        if len(data) < length or data[length:].strip(b"\0"):
            raise ProtocolError(f"authentication plugin {self.name} began with {len(data)} bytes instead of {length}")
        return data[:length]


def would_expose(plugin: str) -> AuthenticationError:
    """Return the error that refuses to send a password where others may read it."""
    return AuthenticationError(
        f"authentication plugin {plugin} would send the password where it can be read.",
        hint="Use TLS that verifies the server (tls=verify-identity), the unix socket, or an account with ed25519 or "
        "mysql_native_password.",
    )


# Source: the server's plugin/auth_mysql_sha2 and MySQL's sha2_password. The password is sent only inside TLS or the
# unix socket, or encrypted with an RSA key that the user gave. The server is never asked for its key, because an
# attacker in between could send another key, for any account, and read the password.


_REMEMBERED = b"\x03"
_PASSWORD_WANTED = b"\x04"


class CachingSha2(Plugin):
    """The plugin caching_sha2_password, with one answer or two.

    The server stores a salted hash, so the plugin cannot prove a certificate.
    """

    name: ClassVar[str] = "caching_sha2_password"

    def __init__(self, secret: Secret) -> None:
        super().__init__(secret)
        self._nonce = b""

    def begin(self, data: bytes) -> bytes:
        self._nonce = self._scramble(data)
        password = self._secret.password
        if not password:
            return b"\0"
        first = sha256(password).digest()
        return _xor(first, sha256(sha256(first).digest() + self._nonce).digest())

    def more(self, data: bytes) -> bytes | None:
        if data == _REMEMBERED:
            return None
        if data != _PASSWORD_WANTED:
            raise ProtocolError(
                f"the server answered caching_sha2_password with {data[:1]!r}, which neither ends "
                "the login nor asks for the password"
            )
        text = self._secret.password + b"\0"
        if self._secret.private:
            return text
        if self._secret.public_key is None:
            raise AuthenticationError(
                "the server wants the password of a caching_sha2_password account over a connection that is not safe.",
                hint="Use TLS that verifies the server, the unix socket, or give the server's RSA key as "
                "server_public_key.",
            )
        key = _public_key(self._secret.public_key)
        mask = self._nonce * (len(text) // len(self._nonce) + 1)
        # SHA-1 is the protocol's choice. In OAEP nothing depends on collisions.
        oaep = padding.OAEP(padding.MGF1(hashes.SHA1()), hashes.SHA1(), None)  # noqa: S303
        try:
            return key.encrypt(_xor(text, mask[: len(text)]), oaep)
        except ValueError:
            raise ConfigError(
                f"the password is too long for the RSA key {self._secret.public_key}.",
                hint="Use TLS instead of server_public_key, or a shorter password.",
            ) from None


def _public_key(path: Path) -> rsa.RSAPublicKey:
    try:
        key = serialization.load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"server_public_key {path} cannot be used: {error}.", hint="A PEM file with an RSA public key is expected."
        ) from None
    if not isinstance(key, rsa.RSAPublicKey):
        raise ConfigError(
            f"server_public_key {path} is not an RSA public key.", hint="A PEM file with an RSA public key is expected."
        )
    return key


def _xor(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


# These plugins send the password itself. They refuse a connection that is neither TLS nor the unix socket, and a PAM
# conversation with a second question.
#
# Source: Connector/C's plugins mysql_clear_password and dialog.


_QUESTION_KINDS = (2, 4)  # an ordinary question, a password; the lowest bit marks the last one
_LAST = 1


class ClearPassword(Plugin):
    """The plugin mysql_clear_password, with one answer: the password and a NUL."""

    name: ClassVar[str] = "mysql_clear_password"

    def begin(self, data: bytes) -> bytes:
        del data  # a service name, or nothing
        if not self._secret.private:
            raise would_expose(self.name)
        return self._secret.password + b"\0"


class Dialog(Plugin):
    """PAM over its dialog. The first question is answered with the password; a second one is refused."""

    name: ClassVar[str] = "dialog"

    def begin(self, data: bytes) -> bytes:
        if not self._secret.private:
            raise would_expose(self.name)
        if data.strip(b"\0") and data[0] & ~_LAST not in _QUESTION_KINDS:
            raise AuthenticationError(
                "the server's PAM service asks a question of an unknown kind.",
                hint="Use an account with ed25519 or mysql_native_password.",
            )
        return self._secret.password + b"\0"

    def more(self, data: bytes) -> bytes | None:
        del data
        raise AuthenticationError(
            "the server's PAM service asks more than one question.",
            hint="A replica can answer with its password only: use an account with another plugin.",
        )


# Source: the server's plugin/auth_ed25519 (ref10/sign.c: crypto_sign). It is RFC 8032 except that the seed is the
# password of any length. libsodium's signing takes 32 bytes only, so its scalar arithmetic is used instead.


class Ed25519(Plugin):
    """The plugin ed25519, with one answer of 64 bytes. The server stores the public key."""

    name: ClassVar[str] = "client_ed25519"

    def begin(self, data: bytes) -> bytes:
        nonce = self._scramble(data, NONCE_BYTES)
        expanded = sha512(self._secret.password).digest()
        scalar, public = _scalar(expanded), self._public_key()
        commitment = crypto_core_ed25519_scalar_reduce(sha512(expanded[32:] + nonce).digest())
        point = crypto_scalarmult_ed25519_base_noclamp(commitment)
        challenge = crypto_core_ed25519_scalar_reduce(sha512(point + public + nonce).digest())
        return point + crypto_core_ed25519_scalar_add(crypto_core_ed25519_scalar_mul(challenge, scalar), commitment)

    def stored(self) -> bytes | None:
        return self._public_key() if self._secret.password else None

    def _public_key(self) -> bytes:
        return crypto_scalarmult_ed25519_base_noclamp(_scalar(sha512(self._secret.password).digest()))


def _scalar(expanded: bytes) -> bytes:
    """Return the lower half of the expanded key, clamped as in RFC 8032, modulo the group's order."""
    clamped = bytearray(expanded[:32])
    clamped[0] &= 0b1111_1000
    clamped[31] = clamped[31] & 0b0111_1111 | 0b0100_0000
    return crypto_core_ed25519_scalar_reduce(bytes(clamped) + bytes(32))


# Source: the server's sql/password.c, scramble(). For an empty password the answer is empty.


class NativePassword(Plugin):
    """The plugin mysql_native_password, with one answer. The server stores SHA1(SHA1(password))."""

    name: ClassVar[str] = "mysql_native_password"

    def begin(self, data: bytes) -> bytes:
        scramble = self._scramble(data)
        if not self._secret.password:
            return b""
        first, mask = self._first(), _sha1(scramble + _sha1(self._first()))
        return bytes(a ^ b for a, b in zip(first, mask, strict=True))

    def stored(self) -> bytes | None:
        return _sha1(self._first()) if self._secret.password else None

    def _first(self) -> bytes:
        return _sha1(self._secret.password)


def _sha1(data: bytes) -> bytes:
    return sha1(data, usedforsecurity=False).digest()  # the protocol's choice


# The server sends 32 random bytes. An empty answer requests the account's salt: `P`, an exponent and 18 bytes. The
# client then sends 32 random bytes and the signature of both. An exponent above 3 is refused, because a hostile server
# could keep the client computing.
#
# Source: the server's plugin/auth_parsec (auth_parsec.cc).


ALGORITHM = b"P"  # PBKDF2
MAX_EXPONENT = 3
ROUNDS = 1024
SALT_BYTES = 18
_HEAD_BYTES = 2  # algorithm and exponent


class Parsec(Plugin):
    """The plugin parsec, with two answers. The server stores the salt with its head, and the public key."""

    name: ClassVar[str] = "parsec"

    def __init__(self, secret: Secret) -> None:
        super().__init__(secret)
        self._nonce = b""
        self._stored: bytes | None = None

    def begin(self, data: bytes) -> bytes:
        self._nonce = self._scramble(data, NONCE_BYTES)
        self._stored = None
        return b""

    def more(self, data: bytes) -> bytes | None:
        if self._stored is not None:
            return super().more(data)
        if len(data) != _HEAD_BYTES + SALT_BYTES or data[:1] != ALGORITHM:
            raise ProtocolError(f"parsec's salt has {len(data)} bytes or is for another algorithm than PBKDF2")
        if data[1] > MAX_EXPONENT:
            raise ProtocolError(f"parsec's server asks for 1024 << {data[1]} rounds; at most 1024 << 3 are accepted")
        seed = pbkdf2_hmac("sha512", self._secret.password, data[_HEAD_BYTES:], ROUNDS << data[1], 32)
        key = SigningKey(seed)
        self._stored = data + key.verify_key.encode()
        ours = secrets.token_bytes(NONCE_BYTES)
        return ours + key.sign(self._nonce + ours).signature

    def stored(self) -> bytes | None:
        return self._stored if self._secret.password else None


PLUGINS: Final[dict[str, type[Plugin]]] = {
    kind.name: kind for kind in (NativePassword, Ed25519, Parsec, CachingSha2, ClearPassword, Dialog)
}
"""Plugins by the server's name of the client's part."""
FOR_GREETINGS: Final = (NativePassword.name, CachingSha2.name)
"""Plugins that can answer the scramble of a greeting. The others begin with their own data."""


def plugin_named(name: str, secret: Secret) -> Plugin:
    """Return the plugin that an AuthSwitchRequest asks for.

    Raises:
        AuthenticationError: the plugin is unknown.
    """
    kind = PLUGINS.get(name)
    if kind is None:
        raise AuthenticationError(
            f"the account uses authentication plugin {name!r}, which is not supported.", hint=advice()
        )
    return kind(secret)


def plugin_for_greeting(name: str, secret: Secret) -> Plugin:
    """Return the first plugin: the server's default if it can answer a greeting, else mysql_native_password."""
    return PLUGINS[name if name in FOR_GREETINGS else NativePassword.name](secret)


def advice() -> str:
    """Return the hint that lists the supported plugins."""
    return "Use an account with one of: ed25519, parsec, mysql_native_password, caching_sha2_password, unix_socket."
