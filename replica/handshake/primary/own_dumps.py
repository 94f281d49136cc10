"""Our own dump threads on a primary, and replicas of others that use our server id.

A primary notices that a client vanished only when it next has something to send. Until then it counts the client as a
semi-sync replica. So a replica that stops ends its dump on the primary, and one that returns after a crash ends the
dump that it left. Both need no privilege, because an account may end its own threads. Neither touches a thread that is
not proven ours.

Source: the server's sql/sql_repl.cc (kill_zombie_dump_threads) and sql/repl_failsafe.cc (register_slave,
show_slave_hosts), 10.11; its own replica ends its dump in the same way (semisync_slave.cc: kill_connection).
"""

from __future__ import annotations

from typing import NamedTuple

from replica.errors import ServerError
from replica.handshake.registration import Query, Steps

ER_NO_SUCH_THREAD = 1094

NAMESAKE_STEP_S = 0.25
"""Seconds between two checks whether a replica with our server id has vanished from the list of replicas."""

# The difference is the start time of the server process, whatever happened to its clock since. The server computes
# Uptime from the statement's time, which is UNIX_TIMESTAMP() (sql/mysqld.cc: show_starttime).
_SELF = (
    "SELECT @@GLOBAL.server_id, CAST(UNIX_TIMESTAMP() - s.VARIABLE_VALUE AS SIGNED), p.ID, p.HOST "
    "FROM information_schema.GLOBAL_STATUS s JOIN information_schema.PROCESSLIST p "
    "WHERE s.VARIABLE_NAME = 'UPTIME' AND p.ID = CONNECTION_ID()"
)
_LISTED_AS = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = '{}' AND ID = %s AND HOST = %s"


class ServerThread(NamedTuple):
    """One connection to one run of one server process.

    Thread ids restart with the server. `started` (seconds since 1970, by the server's clock) distinguishes the runs.
    `client`, the address and port that the server sees, distinguishes a restart within the same second.
    """

    server_id: int
    started: int
    thread_id: int
    client: str


def this_thread() -> Steps[ServerThread]:
    """Return this connection's thread."""
    rows = yield Query(_SELF)
    server_id, started, thread_id, client = rows[0]
    return ServerThread(int(server_id or 0), int(started or 0), int(thread_id or 0), client or "")


def end_dump(thread: ServerThread) -> Steps[bool]:
    """End another dump connection of this account that matches all fields of `thread`; return False if there is none.

    All fields are compared, because a host name may lead to another server by now, and a server may have restarted.
    """
    if not (yield from _listed_as("Binlog Dump", thread)):
        return False
    try:
        yield Query(f"KILL {thread.thread_id}")
    except ServerError as error:
        if error.code != ER_NO_SUCH_THREAD:
            raise
        return False
    return True


def is_leaving(thread: ServerThread) -> Steps[bool]:
    """Return True if another connection of this account was killed and still exists.

    It is registered, but never served again.

    Mostly that lasts a moment. A 10.11 was seen to keep such a thread until another replica came (state "Waiting to
    finalize termination").
    """
    return (yield from _listed_as("Killed", thread))


def _listed_as(command: str, thread: ServerThread) -> Steps[bool]:
    here = yield from this_thread()
    if here[:2] != thread[:2]:
        return False
    return bool((yield Query(_LISTED_AS.format(command), (str(thread.thread_id), thread.client))))


def namesake(server_id: int, patience_s: float) -> Steps[str | None]:
    """Return where another replica with our server id is registered, or None. Ask before this connection registers.

    A replica whose client vanished disappears when the primary next sends it something, so the check is repeated for
    `patience_s` seconds. The result is also None if the account may not list replicas (REPLICATION MASTER ADMIN).
    """
    found = yield from _registered(server_id)
    for _ in range(round(patience_s / NAMESAKE_STEP_S)):
        if found is None:
            break
        yield Query(f"DO SLEEP({NAMESAKE_STEP_S})")
        found = yield from _registered(server_id)
    return found


def _registered(server_id: int) -> Steps[str | None]:
    try:
        rows = yield Query("SHOW SLAVE HOSTS")
    except ServerError:
        return None
    for row in rows:
        if row[0] == str(server_id):
            return f"{row[1] or 'an unnamed host'} (port {row[2]})"
    return None
