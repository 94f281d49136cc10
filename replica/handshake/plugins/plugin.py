"""The parts that every authentication plugin has: an answer to the server's first data, answers to more of it, and a
proof.

In: the account's secret. Out: the payloads to send, none of which holds the password itself unless `Secret.private`
says that no one between us and the server can read it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from replica.errors import AuthenticationError, ProtocolError

if TYPE_CHECKING:
    from pathlib import Path

SCRAMBLE_BYTES = 20
"""Random bytes in the server's greeting (SCRAMBLE_LENGTH); a NUL may follow them."""
NONCE_BYTES = 32
"""What ed25519 and parsec let the client sign."""


@dataclass(frozen=True, slots=True)
class Secret:
    """A password in the bytes that a client sends, UTF-8."""

    password: bytes = field(repr=False)
    private: bool
    """Whether the connection hides what is sent and leads to the right server, as far as the user wants to know."""
    public_key: Path | None = None
    """The server's RSA key, from a source that is trusted."""


class Plugin(ABC):
    """One attempt to log in; the server decides with which plugin, and may change its mind."""

    name: ClassVar[str]
    """The server's name for it: in its greeting, and in an AuthSwitchRequest."""

    def __init__(self, secret: Secret) -> None:
        self._secret = secret

    @abstractmethod
    def begin(self, data: bytes) -> bytes:
        """Return the first answer, to the data of the greeting or of an AuthSwitchRequest.

        Raises:
            AuthenticationError: the answer would give the password away.
            ProtocolError: the data is not what this plugin's server sends.
        """

    def more(self, data: bytes) -> bytes | None:
        """Return the answer to what the server says next (AuthMoreData); None where it wants none and goes on
        itself.
        """
        raise ProtocolError(f"the server goes on with {self.name}, which ends after one answer ({len(data)} bytes)")

    def stored(self) -> bytes | None:
        """Return what the server keeps of the password (`hash_password_bin`); None where it does not tell a secret.

        A server of 11.4 or later mixes it with its certificate, so that only one that knows the account can do so.
        """
        return None

    def _scramble(self, data: bytes, length: int = SCRAMBLE_BYTES) -> bytes:
        if len(data) < length or data[length:].strip(b"\0"):
            raise ProtocolError(f"authentication plugin {self.name} began with {len(data)} bytes instead of {length}")
        return data[:length]


def would_expose(plugin: str) -> AuthenticationError:
    """Return the refusal to send a password where others may read it."""
    return AuthenticationError(
        f"authentication plugin {plugin} would send the password where it can be read.",
        hint="Use TLS that verifies the server (tls=verify-identity), the unix socket, or an account with ed25519 or "
        "mysql_native_password.",
    )
