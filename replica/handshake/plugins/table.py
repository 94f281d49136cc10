"""Table of authentication plugins, by the name that a server asks for."""

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
"""Plugins by the server's name of the client's part."""
FOR_GREETINGS: Final = (NativePassword.name, CachingSha2.name)
"""Plugins that can answer the scramble of a greeting. The others begin with their own data."""


def plugin_named(name: str, secret: Secret) -> Plugin:
    """Return the plugin that an AuthSwitchRequest asks for.

    Raises:
        AuthenticationError: the plugin is unknown.
    """
    kind = PLUGINS.get(name)
    if kind is None:
        raise AuthenticationError(
            f"the account uses authentication plugin {name!r}, which is not supported.", hint=advice()
        )
    return kind(secret)


def plugin_for_greeting(name: str, secret: Secret) -> Plugin:
    """Return the first plugin: the server's default if it can answer a greeting, else mysql_native_password."""
    return PLUGINS[name if name in FOR_GREETINGS else NativePassword.name](secret)


def advice() -> str:
    """Return the hint that lists the supported plugins."""
    return "Use an account with one of: ed25519, parsec, mysql_native_password, caching_sha2_password, unix_socket."
