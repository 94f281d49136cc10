"""mysql_native_password: SHA1(password) XOR SHA1(scramble, SHA1(SHA1(password))).

Source: the server's sql/password.c, scramble(). For an empty password the answer is empty.
"""

from __future__ import annotations

from hashlib import sha1
from typing import ClassVar

from replica.handshake.plugins.plugin import Plugin


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
