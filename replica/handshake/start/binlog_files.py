"""The server's binlog files: which there are, what each begins with, and the last one that begins by a time.

File numbers have no gaps, so halving finds the oldest file without SHOW BINARY LOGS, which needs a privilege of its
own. When a file was begun is in its first event, and only a dump shows that: one short dump, and one login, for each
file that halving looks at, some fourteen of 10 000.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import PrerequisiteError, ServerError
from replica.handshake.login.login import log_in
from replica.handshake.registration import Query, Steps
from replica.handshake.start.peek import ER_NO_SUCH_PLACE, first_event
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.header import parse_header

if TYPE_CHECKING:
    from replica.options.config import Endpoint, ReplicaConfig


class BinlogFiles(NamedTuple):
    """The files `base` + number, from `oldest` to `newest`, without gaps."""

    base: str
    oldest: int
    newest: int

    def name(self, number: int) -> str:
        return f"{self.base}{number:06d}"


class BegunFile(NamedTuple):
    """A binlog file, and when it was begun: seconds since 1970 by the server's clock."""

    name: str
    begun_s: int


def binlog_files() -> Steps[BinlogFiles]:
    """Return the numbers of the files that the server still has.

    Raises:
        PrerequisiteError: it writes no binlog.
    """
    rows = yield Query("SHOW STATUS LIKE 'Binlog_snapshot_file'")
    current = rows[0][1] if rows else None
    match = re.fullmatch(r"(.*\.)([0-9]{6,10})", current or "")
    if match is None:
        raise PrerequisiteError("the server names no binlog file.", hint="Turn log_bin on.")
    files = BinlogFiles(match[1], 1, int(match[2]))
    low, high = 1, files.newest
    while low < high:
        middle = (low + high) // 2
        if (yield from state_at(files.name(middle), FIRST_POSITION)) is None:
            low = middle + 1
        else:
            high = middle
    return files._replace(oldest=high)


def state_at(file: str, position: int) -> Steps[str | None]:
    """Return the GTIDs reached at an offset of a binlog file; None for a file that is not there or an offset inside an
    event.

    Inside an event group, behind its GTID event, the group counts as reached although it is not (measured).
    """
    quoted = file.replace("\\", "\\\\").replace("'", "''")
    rows = yield Query(f"SELECT BINLOG_GTID_POS('{quoted}', {position})")
    return rows[0][0]


async def begun_at(config: ReplicaConfig, endpoint: Endpoint, file: str) -> int | None:
    """Return the time at which the server began the file; None where it was purged."""
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        try:
            return parse_header(memoryview(await first_event(login, file))).timestamp
        except ServerError as error:
            if error.code != ER_NO_SUCH_PLACE:
                raise
            return None


async def last_begun_by(config: ReplicaConfig, endpoint: Endpoint, files: BinlogFiles, time_s: int) -> BegunFile | None:
    """Return the last file that was begun at `time_s` or before, by halving; None where the oldest one was begun
    later.
    """
    found = None
    low, high = files.oldest, files.newest + 1  # the first one begun later is in [low, high]
    while low < high:
        middle = (low + high) // 2
        begun_s = await begun_at(config, endpoint, files.name(middle))
        if begun_s is None or begun_s <= time_s:
            found = BegunFile(files.name(middle), begun_s) if begun_s is not None else None
            low = middle + 1
        else:
            high = middle
    return found
