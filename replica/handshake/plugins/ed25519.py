"""ed25519: an Ed25519 signature of the server's nonce, with a key made from the unsalted password.

Source: the server's plugin/auth_ed25519 (ref10/sign.c: crypto_sign). It is RFC 8032 except that the seed is the
password of any length. libsodium's signing takes 32 bytes only, so its scalar arithmetic is used instead.
"""

from __future__ import annotations

from hashlib import sha512
from typing import ClassVar

from nacl.bindings import (
    crypto_core_ed25519_scalar_add,
    crypto_core_ed25519_scalar_mul,
    crypto_core_ed25519_scalar_reduce,
    crypto_scalarmult_ed25519_base_noclamp,
)

from replica.handshake.plugins.plugin import NONCE_BYTES, Plugin


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
