"""The session that reads tables: what is set in it, read back, and asked, as steps without I/O.

What `settle` sets makes a row's bytes those of the binlog: times in UTC, text in the column's own character set, no
mode that pads, and whole results. Above all the isolation level: at another one the server drops the snapshot, on
10.11 and later without a word. init_connect has run by then, for accounts without SUPER or CONNECTION ADMIN, and may
have set anything.

Refused: a server without a binlog, and a session that is not as it was set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, PrerequisiteError, ProtocolError
from replica.handshake.registration import Query
from replica.protocol.gtid import GtidPosition

if TYPE_CHECKING:
    from replica.handshake.registration import Rows, Steps

STATEMENT_S: Final = 300.0
"""A chunk takes a second; what takes minutes reads a whole table in the wrong order."""
LOCK_WAIT_S: Final = 10.0
"""How long a statement of ours waits for DDL: other statements on the table queue behind it."""
NET_WRITE_S: Final = 60
"""How long the server holds a snapshot for a reader that takes nothing; its own default."""
IDLE_SNAPSHOT_S: Final = 60
"""How long the server keeps a snapshot open in which nothing is asked: its reader hangs, and DDL waits for it."""
IDLE_S: Final = 28_800
"""How long a session may stand idle between two chunks; the server's own default, which many set lower."""

_ISOLATION: Final = ("tx_isolation", "transaction_isolation")  # 11.1 has both names
_LEVEL: Final = "REPEATABLE-READ"
_WANTED: Final = {
    "autocommit": "ON",
    "character_set_results": "",
    "sql_mode": "",
    "sql_select_limit": "18446744073709551615",
    "system_versioning_asof": "DEFAULT",
    "time_zone": "+00:00",
}
"""Variable -> how SHOW VARIABLES prints what `settle` sets."""
_BINLOG: Final = "log_bin"
_WHOLE: Final = (
    "autocommit = 1, time_zone = '+00:00', sql_mode = '', character_set_results = NULL, "
    "sql_select_limit = 18446744073709551615, system_versioning_asof = DEFAULT, sql_big_selects = 1"
)


class SessionLimits(NamedTuple):
    """The time that a statement, and the wait for a lock, may take on the server, in seconds."""

    statement_s: float = STATEMENT_S
    lock_wait_s: float = LOCK_WAIT_S


def settle(limits: SessionLimits) -> Steps[str]:
    """Set the session, and read back what matters; return the name of the variable with the isolation level.

    Raises:
        PrerequisiteError: the session is not as it was set, or the server writes no binlog.
    """
    yield Query("ROLLBACK")  # a transaction that init_connect began would keep its snapshot and its level
    yield Query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    wait_s = max(round(limits.lock_wait_s), 1)
    yield Query(
        f"SET SESSION {_WHOLE}, max_statement_time = {limits.statement_s:g}, lock_wait_timeout = {wait_s}, "
        f"innodb_lock_wait_timeout = {wait_s}, net_write_timeout = {NET_WRITE_S}, wait_timeout = {IDLE_S}, "
        f"idle_transaction_timeout = {IDLE_SNAPSHOT_S}, idle_readonly_transaction_timeout = {IDLE_SNAPSHOT_S}"
    )
    names = ", ".join(f"'{name}'" for name in (*_WANTED, *_ISOLATION, _BINLOG))
    rows = yield Query(f"SHOW SESSION VARIABLES WHERE Variable_name IN ({names})")
    return _judged(rows)


def _judged(rows: Rows) -> str:
    found = {(name or "").lower(): value or "" for name, value in rows}
    if found.get(_BINLOG, "").upper() != "ON":
        raise PrerequisiteError(
            "the server writes no binlog (log_bin is off): its tables stand at no position of a stream.",
            hint="Set log_bin under [mariadb] in the server's configuration file and restart the server.",
        )
    levels = {name: found[name] for name in _ISOLATION if name in found}
    wrong = [f"{name} is {found.get(name)!r}" for name, value in _WANTED.items() if found.get(name) != value]
    wrong += [f"{name} is {level!r}" for name, level in levels.items() if level != _LEVEL]
    if wrong or not levels:
        raise forced(", ".join(wrong) or "the session has no isolation level")
    return next(iter(levels))


def forced(what: str) -> PrerequisiteError:
    """Make the error of a session that does not keep what we set; `what` says how it differs."""
    return PrerequisiteError(
        f"the session that reads tables does not keep its settings: {what}.",
        hint="Tables are read at REPEATABLE READ, in UTC and as stored. Look what sets this in every session: "
        "init_connect, or a proxy between.",
    )


def begin(isolation: str) -> Steps[GtidPosition]:
    """Open the snapshot, and read U: the position that is never below what the snapshot sees.

    A commit is in the binlog before it is visible, so what the snapshot sees lies before a position that is read behind
    its opening (measured: 112 817 reads on 10.5, 10.11 and 11.8).

    Args:
        isolation: the name of the variable with the isolation level.

    Raises:
        PrerequisiteError: the session has another isolation level: the server has not opened a snapshot.
    """
    yield Query("START TRANSACTION READ ONLY, WITH CONSISTENT SNAPSHOT")
    ((level, text),) = yield Query(f"SELECT @@session.{isolation}, @@global.gtid_binlog_pos")
    if level != _LEVEL:
        raise forced(f"{isolation} is {level!r}")
    return position_of(text)


def ask_position() -> Steps[GtidPosition]:
    """Ask for the position of the binlog's end."""
    ((text,),) = yield Query("SELECT @@global.gtid_binlog_pos")
    return position_of(text)


def position_of(text: str | None) -> GtidPosition:
    """Read a position as a server says it."""
    try:
        return GtidPosition.parse(text or "")
    except ConfigError as error:
        raise ProtocolError(f"the server's GTID position is none: {error.message}") from None


def text_literal(text: str) -> str:
    """Quote a text for a statement of this session, whose sql_mode leaves backslashes their meaning."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
