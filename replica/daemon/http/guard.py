"""Access control of the daemon's HTTP interface: a token in requests, and TLS.

In: the file of a token, the files of a certificate and its key. Out: whether a request has the token, and the TLS
context of connections. A file that cannot be used is a ConfigError at the start. The token's file is read at every
request that needs it, so that a new token takes effect at once. While the file cannot be read, no request is answered.
The token must never appear in a message, answer or log.
"""

from __future__ import annotations

import hmac
import ssl
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import MAY_READ, ConfigError

if TYPE_CHECKING:
    from pathlib import Path

    from replica.daemon.config import DaemonConfig

OPEN: Final = frozenset({"/healthz", "/readyz"})
"""Paths without a token. They reveal only the health, and most probes cannot send a header."""
MIN_TOKEN: Final = 16
"""Minimum length of a token. A shorter one can be guessed like a password."""
MAX_TOKEN_BYTES: Final = 4096
"""Maximum length of a token in bytes: longer header lines are refused by common servers and scrapers."""


class Guard(NamedTuple):
    """Access control of the HTTP interface. By default it admits everyone, in plain text."""

    token_file: Path | None = None
    tls: ssl.SSLContext | None = None

    @classmethod
    def of(cls, config: DaemonConfig) -> Guard:
        """Return the guard for these options.

        Raises:
            ConfigError: a file cannot be used.
        """
        if config.http_token_file is not None:
            read_token(config.http_token_file)
        return cls(config.http_token_file, _context(config))

    def admits(self, path: str, authorization: str | None) -> bool:
        """Return True if a request may be answered.

        Args:
            path: path of the request.
            authorization: its Authorization header, if any.

        Raises:
            ConfigError: the token's file cannot be read any more.
        """
        if self.token_file is None or path in OPEN:
            return True
        wanted = f"Bearer {read_token(self.token_file)}"
        # Constant time, because the duration of an answer must not reveal how much of a guess was right.
        return hmac.compare_digest((authorization or "").encode(), wanted.encode())


def read_token(path: Path) -> str:
    """Return the first line of a token's file.

    Raises:
        ConfigError: the file cannot be read, or holds no token.
    """
    try:
        with path.open("rb") as file:
            line = file.read(MAX_TOKEN_BYTES).split(b"\n", 1)[0].strip()
    except OSError as error:
        raise ConfigError(f"http_token_file {path} cannot be read: {error.strerror}.", hint=MAY_READ) from None
    if len(line) < MIN_TOKEN or not line.isascii() or not line.decode().isprintable() or b" " in line:
        raise ConfigError(
            f"http_token_file {path} holds no token.",
            hint=f"Its first line needs {MIN_TOKEN} or more letters and digits, for example from: openssl rand -hex 32",
        )
    return line.decode()


def _context(config: DaemonConfig) -> ssl.SSLContext | None:
    if config.http_tls_cert is None or config.http_tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password here, OpenSSL asks a terminal for the passphrase of a protected key, and waits.
        context.load_cert_chain(config.http_tls_cert, config.http_tls_key, password=b"")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError(
            f"http_tls_cert {config.http_tls_cert} with key {config.http_tls_key} cannot be used: {error}.",
            hint="PEM files are expected: the certificate, followed by those up to its authority, and its key.",
        ) from None
    return context
