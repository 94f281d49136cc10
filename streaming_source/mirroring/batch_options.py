"""The options of the source with which a mirror's driver reads the server beside the stream: for repairs.

In: the options that the mirror was started with. Out: those that name the server, the login and what values become.
What is of one stream alone stays behind: its relay log, its server id, its limits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streaming_source.mirroring.settings import MirrorSettings

KEPT: Final = frozenset(
    {
        *("host", "port", "unixsocket", "user", "password", "passwordfile", "defaultsfile", "serverpublickey"),
        *("tls", "tlsca", "tlscert", "tlskey", "compress", "connecttimeout", "connectretry", "netwritetimeout"),
        *("backoffinitial", "backoffmax", "reconnectretry", "heartbeat", "reporthost", "relaymaxbytes", "minfreebytes"),
        *("invaliddates", "invalidtext", "snapshotconnections", "snapshotchunkrows", "snapshotrowspersecond"),
    }
)


def batch_options(settings: MirrorSettings) -> dict[str, str]:
    """Return the options of a batch read of the same server."""
    return {name: value for name, value in settings.given.items() if name.lower() in KEPT}
