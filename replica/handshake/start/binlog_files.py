"""The server's binlog files: their numbers, their first events, and the last file that was begun by a given time.

File numbers have no gaps, so a binary search finds the oldest file. SHOW BINARY LOGS is not used, because it needs
another privilege. The begin time of a file is in its first event, which only a dump returns. The search for a time
therefore takes one short dump and one login for each file that it tests, about fourteen for 10 000 files.
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
    """A binlog file, and its begin time in seconds since 1970 by the server's clock."""

    name: str
    begun_s: int


def binlog_files() -> Steps[BinlogFiles]:
    """Return the range of files that the server still has.

    Raises:
        PrerequisiteError: the server writes no binlog.
    """
    rows = yield Query("SHOW STATUS LIKE 'Binlog_snapshot_file'")
    current = rows[0][1] if rows else None
    match = re.fullmatch(r"(.*\.)([0-9]{6,10})", current or "")
    if match is None:
        raise PrerequisiteError("the server reports no binlog file.", hint="Turn log_bin on.")
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
    """Return the GTIDs reached at an offset of a binlog file.

    None means that the file does not exist, or that the offset is inside an event. Inside an event group, after its
    GTID event, the group counts as reached although it is not (measured).
    """
    quoted = file.replace("\\", "\\\\").replace("'", "''")
    rows = yield Query(f"SELECT BINLOG_GTID_POS('{quoted}', {position})")
    return rows[0][0]


async def begun_at(config: ReplicaConfig, endpoint: Endpoint, file: str) -> int | None:
    """Return the time at which the server began the file, in seconds since 1970; None if the file was purged."""
    login = await log_in(config, endpoint)
    with contextlib.closing(login):
        try:
            return parse_header(memoryview(await first_event(login, file))).timestamp
        except ServerError as error:
            if error.code != ER_NO_SUCH_PLACE:
                raise
            return None


async def last_begun_by(config: ReplicaConfig, endpoint: Endpoint, files: BinlogFiles, time_s: int) -> BegunFile | None:
    """Return the last file that was begun at `time_s` or before; None if even the oldest was begun later."""
    found = None
    low, high = files.oldest, files.newest + 1  # the first file begun later is in [low, high]
    while low < high:
        middle = (low + high) // 2
        begun_s = await begun_at(config, endpoint, files.name(middle))
        if begun_s is None or begun_s <= time_s:
            found = BegunFile(files.name(middle), begun_s) if begun_s is not None else None
            low = middle + 1
        else:
            high = middle
    return found
