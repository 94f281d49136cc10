"""The folder for the relay log of an embedded replica, if the user did not name one.

`relay_directory` returns a private folder in the temp folder. Its name depends on the server, the account and the
tables, so that a restarted query finds its log again. A replica locks the folder while it writes, so a second query
with the same options takes the next one. A folder of that name that others may write is an error, because anyone may
have made it in /tmp.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from replica.errors import RelayError
from replica.relay_log.directory.lock import lock_holder

if TYPE_CHECKING:
    from streaming_source.options.source_options import SourceOptions

MAX_QUERIES = 64
"""Most queries of one account with the same options on one machine. More of them are a sign of a loop that stops no
query.
"""


def relay_directory(options: SourceOptions) -> Path:
    """Return the folder to use; it exists. It is not locked, so a caller that loses the race for the lock calls again.

    Raises:
        RelayError: there is no free folder, or others can write one.
    """
    if options.relay_dir is not None:
        return options.relay_dir
    base = private_base()
    key = "|".join((options.server, options.connection.user, *options.patterns))
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    for number in range(1, MAX_QUERIES + 1):
        folder = private_folder(base / f"{name}-{number}")
        if is_free(folder):
            return folder
    raise RelayError(
        f"{MAX_QUERIES} queries with these options are running on this machine.",
        hint="Stop some of them, or give each its own relayDir.",
    )


def private_base() -> Path:
    """Return the account's private folder in the temp folder."""
    return private_folder(Path(tempfile.gettempdir()) / f"spark-mariadb-binlog-{os.getuid()}")


def is_free(folder: Path) -> bool:
    """Return True if no process writes a relay log there now."""
    return lock_holder(folder) is None


def private_folder(folder: Path) -> Path:
    """Return `folder`, and create it if needed.

    Raises:
        RelayError: others can write it, or another account owns it.
    """
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise RelayError(
            f"{folder} is not a private folder of this account.",
            hint="Set relayDir to a folder that no one else can write.",
        )
    return folder
