"""The one table of authentication plugins: what a server may ask for -> how it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.errors import AuthenticationError
from replica.handshake.plugins.caching_sha2 import CachingSha2
from replica.handshake.plugins.clear import ClearPassword, Dialog
from replica.handshake.plugins.ed25519 import Ed25519
from replica.handshake.plugins.native import NativePassword
from replica.handshake.plugins.parsec import Parsec

if TYPE_CHECKING:
    from replica.handshake.plugins.plugin import Plugin, Secret

PLUGINS: Final[dict[str, type[Plugin]]] = {
    kind.name: kind for kind in (NativePassword, Ed25519, Parsec, CachingSha2, ClearPassword, Dialog)
}
"""The plugins by the name the server uses for the client's part."""
FOR_GREETINGS: Final = (NativePassword.name, CachingSha2.name)
"""The plugins that can answer the scramble of a greeting; the others begin with data of their own."""


def plugin_named(name: str, secret: Secret) -> Plugin:
    """Return the plugin an AuthSwitchRequest asks for.

    Raises:
        AuthenticationError: there is none of that name.
    """
    kind = PLUGINS.get(name)
    if kind is None:
        raise AuthenticationError(
            f"the account uses authentication plugin {name!r}, which is not supported.", hint=advice()
        )
    return kind(secret)


def plugin_for_greeting(name: str, secret: Secret) -> Plugin:
    """Return the plugin to begin with: the server's own default where that can begin, else the one every server
    knows.
    """
    return PLUGINS[name if name in FOR_GREETINGS else NativePassword.name](secret)


def advice() -> str:
    """Name the accounts that can be used."""
    return "Use an account with one of: ed25519, parsec, mysql_native_password, caching_sha2_password, unix_socket."
