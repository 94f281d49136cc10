"""The server's certificate checked through the password, for servers (11.4+) that made it themselves.

In: the plugin that logged us in, the scramble of the greeting, the certificate TLS was made with, and the final OK
packet's text. The server puts there a digest of all three; one that does not know the account's password, a man in the
middle with a certificate of his own, cannot make it. Source: the server's sql_acl.cc (make_ssl_info) and Connector/C's
my_auth.c.

Refused: another digest; none, from a server that has no such thing or for an account whose password is empty.
"""

from __future__ import annotations

import hmac
from hashlib import sha256
from typing import TYPE_CHECKING

from replica.errors import AuthenticationError
from replica.handshake.plugins.plugin import SCRAMBLE_BYTES

if TYPE_CHECKING:
    from replica.handshake.login.authentication import Authenticated

_DIGEST_CHARACTERS = 64
_DIGEST_HEAD = bytes((1 + _DIGEST_CHARACTERS, 1))
"""Length of what follows, and its kind: a digest with SHA-256."""
_OTHER_WAY = "Use tls=verify-identity with the server's certificate authority as tls_ca."


def check_certificate(done: Authenticated, scramble: bytes, certificate: bytes) -> None:
    """Compare what the server says with what it must say about `certificate` (DER).

    Raises:
        AuthenticationError: it is not the certificate of a server that knows the password, or that cannot be told.
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
            "the TLS certificate is not that of the server that knows the password: someone stands in between.",
            hint=f"A proxy that ends TLS itself looks the same. {_OTHER_WAY}",
        )


def _digest(info: bytes) -> bytes | None:
    head, digest = info[: len(_DIGEST_HEAD)], info[len(_DIGEST_HEAD) :]
    return digest if head == _DIGEST_HEAD and len(digest) == _DIGEST_CHARACTERS else None
