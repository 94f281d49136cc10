"""The session that reads tables: what is set in it, read back, and asked, as steps without I/O.

The login has set what every session of ours has (`handshake/login/session_settings.py`). `settle` adds what makes
a row's bytes those of the binlog: text in the column's own character set, limits of time, and the isolation level
REPEATABLE READ. At another level the server drops the snapshot, on 10.11 and later without an error.

Refused: a server without a binlog, and a session that is not as it was set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, PrerequisiteError, ProtocolError
from replica.handshake.login.session_settings import (
    SETTINGS,
    SessionSetting,
    differences,
    not_kept,
    set_session,
    show_session,
    variables_of,
)
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
_BINLOG: Final = "log_bin"
_STORED: Final = SessionSetting("character_set_results", "NULL", "", "text comes in the column's own character set")
_WANTED: Final = {
    **{one.name: one.shown for one in SETTINGS if one.shown is not None and one.name != "max_statement_time"},
    _STORED.name: _STORED.shown or "",
}
"""Variable -> how SHOW prints it in a session that `settle` has set."""


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
    yield Query(set_session((_STORED, *_limits(limits))))
    rows = yield Query(show_session((*_WANTED, *_ISOLATION, _BINLOG)))
    return _judged(rows)


def _limits(limits: SessionLimits) -> tuple[SessionSetting, ...]:
    wait_s = str(max(round(limits.lock_wait_s), 1))
    idle, wait = "a snapshot that its reader forgot holds up DDL", "DDL must not wait for a reader that waits"
    return (
        SessionSetting("max_statement_time", f"{limits.statement_s:g}", None, "a chunk in the wrong order reads all"),
        SessionSetting("lock_wait_timeout", wait_s, None, wait),
        SessionSetting("innodb_lock_wait_timeout", wait_s, None, wait),
        SessionSetting("net_write_timeout", str(NET_WRITE_S), None, "a snapshot is held while it cannot write"),
        SessionSetting("wait_timeout", str(IDLE_S), None, "a session stands idle between two chunks"),
        SessionSetting("idle_transaction_timeout", str(IDLE_SNAPSHOT_S), None, idle),
        SessionSetting("idle_readonly_transaction_timeout", str(IDLE_SNAPSHOT_S), None, idle),
    )


def _judged(rows: Rows) -> str:
    found = variables_of(rows)
    if found.get(_BINLOG, "").upper() != "ON":
        raise PrerequisiteError(
            "the server writes no binlog (log_bin is off): its tables stand at no position of a stream.",
            hint="Set log_bin under [mariadb] in the server's configuration file and restart the server.",
        )
    levels = {name: found[name] for name in _ISOLATION if name in found}
    wrong = differences(found, _WANTED)
    wrong += [f"{name} is {level!r}" for name, level in levels.items() if level != _LEVEL]
    if wrong or not levels:
        raise not_kept(", ".join(wrong) or "it has no isolation level")
    return next(iter(levels))


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
        raise not_kept(f"{isolation} is {level!r}")
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
