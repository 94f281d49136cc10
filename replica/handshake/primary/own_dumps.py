"""Our own dump threads on a primary, and those of others that use our server id.

A primary does not notice that a client vanished before it next has something to send, and counts it as a semi-sync
replica until then. So a replica that leaves ends its dump there, and one that comes back after a crash ends what it
left behind. Both need no privilege, because an account may end its own threads; neither touches a thread that is not
proven ours.

Source: the server's sql/sql_repl.cc (kill_zombie_dump_threads) and sql/repl_failsafe.cc (register_slave,
show_slave_hosts), 10.11; its own replica ends its dump so too (semisync_slave.cc: kill_connection).
"""

from __future__ import annotations

from typing import NamedTuple

from replica.errors import ServerError
from replica.handshake.registration import Query, Steps

ER_NO_SUCH_THREAD = 1094

NAMESAKE_STEP_S = 0.25
"""How often the list of replicas is looked at again for one with our server id that may be about to vanish."""

# The difference is the time at which the server process started, whatever happened to its clock since: the server
# computes Uptime from the statement's time, which is UNIX_TIMESTAMP() (sql/mysqld.cc: show_starttime).
_SELF = (
    "SELECT @@GLOBAL.server_id, CAST(UNIX_TIMESTAMP() - s.VARIABLE_VALUE AS SIGNED), p.ID, p.HOST "
    "FROM information_schema.GLOBAL_STATUS s JOIN information_schema.PROCESSLIST p "
    "WHERE s.VARIABLE_NAME = 'UPTIME' AND p.ID = CONNECTION_ID()"
)
_LISTED_AS = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND = '{}' AND ID = %s AND HOST = %s"


class ServerThread(NamedTuple):
    """One connection to one run of one server process.

    Thread ids begin again when a server restarts: `started` (seconds since 1970, by the server's clock) tells the runs
    apart, and `client`, the address and port that the server sees, a restart within the same second.
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
    """End another connection of this account, if that is a dump and all of `thread`. Return whether it was there.

    A host name may lead to another server by now, and a server may have been restarted.
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
    """Tell whether another connection of this account has been ended but has not gone: it is still registered, and
    never served again.

    Mostly for a moment; a 10.11 was seen to keep one for as long as no other replica came (state "Waiting to finalize
    termination").
    """
    return (yield from _listed_as("Killed", thread))


def _listed_as(command: str, thread: ServerThread) -> Steps[bool]:
    here = yield from this_thread()
    if here[:2] != thread[:2]:
        return False
    return bool((yield Query(_LISTED_AS.format(command), (str(thread.thread_id), thread.client))))


def namesake(server_id: int, patience_s: float) -> Steps[str | None]:
    """Return where another replica with our server id is registered, or None; ask before this connection registers
    itself.

    One whose client is gone vanishes as soon as the primary tries to send it something, so it is looked at again for
    `patience_s`. It is None too where the account may not list replicas (REPLICATION MASTER ADMIN).
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
