"""Plugins that send the password in clear: mysql_clear_password, and PAM's dialog with one question.

Source: Connector/C's plugins mysql_clear_password and dialog. The password is sent inside TLS or the unix socket only.

Refused: an unprotected connection, and a PAM conversation that asks for anything but one password.
"""

from __future__ import annotations

from typing import ClassVar

from replica.errors import AuthenticationError
from replica.handshake.plugins.plugin import Plugin, would_expose

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
