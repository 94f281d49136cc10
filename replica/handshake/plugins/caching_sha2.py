"""caching_sha2_password: a SHA-256 scramble if the server has cached the account, else the password itself.

Source: the server's plugin/auth_mysql_sha2 and MySQL's sha2_password. The password is sent only inside TLS or the unix
socket, or encrypted with an RSA key that the user gave. The server is never asked for its key, because an attacker in
between could send another key, for any account, and read the password.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, ClassVar

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from replica.errors import AuthenticationError, ConfigError, ProtocolError
from replica.handshake.plugins.plugin import Plugin, Secret

if TYPE_CHECKING:
    from pathlib import Path

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
