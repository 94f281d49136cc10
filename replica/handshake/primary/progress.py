"""Progress of a primary and retention of its binlog, which the monitor queries beside the stream.

In: the primary's file that our log has reached. Out: a `PrimaryAnswer`. An account with REPLICATION SLAVE gets all
fields except the sizes of the binlog files. The sizes need BINLOG MONITOR and are None without this privilege.
Variables that a version does not know are None too.

Source: the privilege that each statement needs, and its answer without the privilege, are measured on 10.5, 10.11 and
11.8. BINLOG_GTID_POS returns NULL for a purged file (the same versions).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import ServerError
from replica.handshake.primary.server import PLACE_OF_A_SERVER, uid_of
from replica.handshake.registration import Query, Steps, by_name, string_list
from replica.protocol.constants import FIRST_POSITION
from replica.protocol.gtid import BinlogPosition, GtidPosition

if TYPE_CHECKING:
    from collections.abc import Mapping

DENIED_CODES = (1227, 1045)
"""ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_ERROR (sql/share/errmsg-utf8.txt)."""
SECONDS_A_DAY = 86_400.0

_CLOCK = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
"""SQL expression for the server's clock in microseconds since 1970, independent of its time zone.

UNIX_TIMESTAMP(NOW(6)) is wrong by one hour during the hour that is repeated when daylight saving time ends.
"""
_VARIABLES = ("binlog_expire_logs_seconds", "expire_logs_days", "max_binlog_total_size", *PLACE_OF_A_SERVER)
_STATUS = (
    "Binlog_snapshot_file",
    "Binlog_snapshot_position",
    "Rpl_semi_sync_master_status",
    "Rpl_semi_sync_master_clients",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PrimaryAnswer:
    """State of a primary at one time.

    Times are seconds since 1970: `asked_at` and `answered_at` by our clock, `clock` by the primary's.
    """

    server_id: int
    position: GtidPosition
    place: BinlogPosition | None
    clock: float
    asked_at: float
    answered_at: float
    expiry_s: float | None
    """Age in seconds after which binlog files are purged. None: not by age."""
    max_total_bytes: int | None
    """Total size in bytes beyond which binlog files are purged (max_binlog_total_size, 11.4). None: not by size."""
    file_kept: bool | None
    """Whether the primary still has `needed_file`."""
    semi_sync: bool | None
    """Whether commits wait for an acknowledgement now (Rpl_semi_sync_master_status)."""
    semi_sync_clients: int | None
    uid: str = ""
    """Identity of the server, because several servers may have one server id (`ServerInfo.uid`)."""

    @property
    def clock_offset_s(self) -> float:
        """The primary's clock minus ours in seconds, with an error of at most half the time of the answer."""
        return self.clock - (self.asked_at + self.answered_at) / 2


@dataclass(frozen=True, slots=True)
class ListedBinlog:
    """One line of SHOW BINARY LOGS."""

    name: str
    size: int


def ask_primary(needed_file: str) -> Steps[PrimaryAnswer]:
    """Return the primary's state, and whether it still has the binlog file `needed_file` ('' for none yet)."""
    asked_at = time.time()
    clocked = yield Query(f"SELECT {_CLOCK}, @@GLOBAL.gtid_binlog_pos, @@GLOBAL.server_id")
    answered_at = time.time()
    clock_us, position, server_id = clocked[0]
    status = by_name((yield Query(f"SHOW STATUS WHERE Variable_name IN ({string_list(_STATUS)})")))
    variables = by_name((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({string_list(_VARIABLES)})")))
    kept = None
    if needed_file:
        rows = yield Query("SELECT BINLOG_GTID_POS(%s, %s)", (needed_file, str(FIRST_POSITION)))
        kept = rows[0][0] is not None
    file = status.get("binlog_snapshot_file", "")
    clients = status.get("rpl_semi_sync_master_clients")
    return PrimaryAnswer(
        server_id=int(server_id or 0),
        position=GtidPosition.parse(position or ""),
        place=BinlogPosition(file, int(status["binlog_snapshot_position"])) if file else None,
        clock=int(clock_us or 0) / 1e6,
        asked_at=asked_at,
        answered_at=answered_at,
        expiry_s=_expiry_s(variables),
        max_total_bytes=int(variables.get("max_binlog_total_size", "0")) or None,
        file_kept=kept,
        semi_sync={"ON": True, "OFF": False}.get(status.get("rpl_semi_sync_master_status", "")),
        semi_sync_clients=None if clients is None else int(clients),
        uid=uid_of(variables),
    )


def list_binlogs() -> Steps[tuple[ListedBinlog, ...] | None]:
    """Return the primary's binlog files, oldest first; None if the account may not list them (BINLOG MONITOR)."""
    try:
        rows = yield Query("SHOW BINARY LOGS")
    except ServerError as error:
        if error.code not in DENIED_CODES:
            raise
        return None
    return tuple(ListedBinlog(row[0] or "", int(row[1] or 0)) for row in rows)


def _expiry_s(variables: Mapping[str, str]) -> float | None:
    # 10.6 and newer know both, as two spellings of one value. 10.5 knows whole days only (measured on both).
    seconds = float(variables.get("binlog_expire_logs_seconds", "0"))
    return seconds or float(variables.get("expire_logs_days", "0")) * SECONDS_A_DAY or None
