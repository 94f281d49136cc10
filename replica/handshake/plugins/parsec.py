"""parsec (11.6+): an Ed25519 signature with a key derived from the password, the account's salt, and many rounds.

Source: the server's plugin/auth_parsec (auth_parsec.cc). The server sends 32 random bytes. An empty answer asks for the
account's salt: `P`, an exponent and 18 bytes. Then 32 random bytes of ours and the signature of both are sent.

Refused: another algorithm, and an exponent above 3. No server sets such an exponent, and a hostile one could keep us
computing with it.
"""

from __future__ import annotations

import secrets
from hashlib import pbkdf2_hmac
from typing import ClassVar

from nacl.signing import SigningKey

from replica.errors import ProtocolError
from replica.handshake.plugins.plugin import NONCE_BYTES, Plugin, Secret

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
