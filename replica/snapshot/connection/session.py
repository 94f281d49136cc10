"""Settings of a session that reads tables, and its snapshot statements, as steps without I/O.

The login applies the settings of all sessions (`handshake/login/session_settings.py`). `settle` adds the settings that
make row bytes equal those of the binlog: text in the column's own character set, time limits, and REPEATABLE READ. At
another isolation level the server drops the snapshot, on 10.11 and later without an error. A server without a binlog is
refused, and so is a session that does not keep its settings.
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
"""Default limit of a statement's run time in seconds. A chunk takes about one second. A SELECT that takes minutes does
not read in index order.
"""
LOCK_WAIT_S: Final = 10.0
"""Maximum wait for DDL in seconds. Other statements on the table queue while this session waits."""
NET_WRITE_S: Final = 60
"""Time in seconds for which the server holds a snapshot for a reader that does not receive; the server's own
default.
"""
IDLE_SNAPSHOT_S: Final = 60
"""Time in seconds after which the server closes an idle snapshot. Its reader hangs, and DDL waits for the snapshot."""
IDLE_S: Final = 28_800
"""Maximum idle time between two chunks in seconds: the server's own default, which many servers lower."""

_ISOLATION: Final = ("tx_isolation", "transaction_isolation")  # 11.1 has both variables
_LEVEL: Final = "REPEATABLE-READ"
_BINLOG: Final = "log_bin"
_STORED: Final = SessionSetting("character_set_results", "NULL", "", "text comes in the column's own character set")
_WANTED: Final = {
    **{one.name: one.shown for one in SETTINGS if one.shown is not None and one.name != "max_statement_time"},
    _STORED.name: _STORED.shown or "",
}
"""Variable -> value that SHOW prints in a session after `settle`."""


class SessionLimits(NamedTuple):
    """Maximum run time and lock wait of a statement on the server, in seconds."""

    statement_s: float = STATEMENT_S
    lock_wait_s: float = LOCK_WAIT_S


def settle(limits: SessionLimits) -> Steps[str]:
    """Apply the session settings and read them back; return the name of the isolation level variable.

    Raises:
        PrerequisiteError: The session does not keep its settings, or the server writes no binlog.
    """
    yield Query("ROLLBACK")  # a transaction opened by init_connect would keep its snapshot and isolation level
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
            "the server writes no binlog (log_bin is off), so its tables have no position in a stream.",
            hint="Set log_bin under [mariadb] in the server's configuration file and restart the server.",
        )
    levels = {name: found[name] for name in _ISOLATION if name in found}
    wrong = differences(found, _WANTED)
    wrong += [f"{name} is {level!r}" for name, level in levels.items() if level != _LEVEL]
    if wrong or not levels:
        raise not_kept(", ".join(wrong) or "it has no isolation level")
    return next(iter(levels))


def begin(isolation: str) -> Steps[GtidPosition]:
    """Open the snapshot and return a position that covers everything the snapshot sees.

    A commit enters the binlog before it becomes visible. Therefore, a position that is read after the snapshot opens
    covers all visible commits (measured on 10.5, 10.11 and 11.8).

    Args:
        isolation: Name of the isolation level variable.

    Raises:
        PrerequisiteError: The session has another isolation level, so the server has opened no snapshot.
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
    """Parse a GTID position from the server."""
    try:
        return GtidPosition.parse(text or "")
    except ConfigError as error:
        raise ProtocolError(f"the server's GTID position is invalid: {error.message}") from None


def text_literal(text: str) -> str:
    """Quote a text for a statement of this session, whose sql_mode keeps backslash escapes."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
