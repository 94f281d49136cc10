"""Options with which the soak starts a query: a random feed and random limits for the same rows.

In: a random source, and the addresses and folders. Out: options of the source, and the name of the feed. The feed is
`embedded` (a replica in the source), `attached` (a daemon's relay log alone) or `attached with a server`. One
checkpoint is continued with different feeds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.proofs.soak.daemon.pair import DATABASE, REPLICA

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

EMBEDDED, ATTACHED, ATTACHED_WITH_SERVER = "embedded", "attached", "attached with a server"
BATCH_BYTES = ("1m", "2m", "4m", "16m")
BATCH_ROWS = ("5000", "20000", "50000")


def daemon_options() -> tuple[str, ...]:
    """It keeps everything: a query that was fed otherwise for a while must find its place."""
    return "--retain-bytes=1t", "--retain=7d", "--relay-max-bytes=1t", "--relay-max-file-bytes=8m"


def draw_options(chance: random.Random, primary: MariaDb, folder: Path, kind: str) -> tuple[dict[str, str], str]:
    feed = chance.choices((EMBEDDED, ATTACHED, ATTACHED_WITH_SERVER), (6, 3, 1))[0]
    options = {
        "tables": f"{DATABASE}.*",
        "onStatementDml": "ignore",  # the load has TRUNCATE, and the oracle knows of it
        "startingPosition": "earliest",
        "maxBytesPerTrigger": chance.choice(BATCH_BYTES),
        "transport": chance.choice(("path", "path", "auto", "inline")),
    }
    if chance.random() < 0.3:
        options["maxRowsPerTrigger"] = chance.choice(BATCH_ROWS)
    if feed == EMBEDDED:
        options |= {"relayDir": str(folder / f"relay-{kind}"), "relayMaxFileBytes": chance.choice(("1m", "16m"))}
    else:
        options |= {"relayDir": str(folder / "daemon"), "readerName": f"soak-{kind}"}
    if feed != ATTACHED:
        user, password = REPLICA
        options |= {"host": primary.host, "port": str(primary.port), "user": user, "password": password}
    return options, feed
