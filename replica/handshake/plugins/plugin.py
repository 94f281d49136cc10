"""Interface of authentication plugins: an answer to the server's first data, answers to more data, and a proof.

In: the account's secret. Out: the payloads to send. None contains the password itself unless `Secret.private` says that
no one between us and the server can read it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from replica.errors import AuthenticationError, ProtocolError

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
    """One attempt to log in. The server chooses the plugin, and may change it."""

    name: ClassVar[str]
    """The server's name of the plugin, in its greeting and in an AuthSwitchRequest."""

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

        A server of 11.4 or later mixes it with its certificate, so that only a server that knows the account can do so.
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
