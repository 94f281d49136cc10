"""A look at the server's threads: can any of them be in a commit, so that the engine lacks what the binlog has?

In: a connection. Out: True where all threads that do anything are this one and dumps: none can. A commit is a statement
of a thread: from before it is in the binlog until the engine has it, that thread does not sleep. So all that the binlog
held before this was asked is in the engine, also after a rotation, an XA COMMIT, or a commit that an engine without two
phases takes part in. False proves nothing: an account without PROCESS is shown none of the dumps of others.

Threads_running counts all threads that do not sleep, whatever the account may see (add_to_status and calc_sum_callback
in sql/sql_show.cc). Seen on 10.5, 10.11 and 11.8 with commits that hang in a rotation and in an XA COMMIT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.handshake.registration import Query

if TYPE_CHECKING:
    from replica.handshake.registration import Rows, Steps

_OTHERS: Final = (
    "SELECT ID, COMMAND FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Sleep' AND ID <> CONNECTION_ID()"
)
_RUNNING, _GALERA = "threads_running", "wsrep_connected"
_COUNT: Final = f"SHOW GLOBAL STATUS WHERE Variable_name IN ('{_RUNNING}', '{_GALERA}')"
_DUMP: Final = "Binlog Dump"


def ask_no_commit() -> Steps[bool]:
    """Ask whether no thread of the server can be in a commit."""
    others = yield Query(_OTHERS)
    counted = yield Query(_COUNT)
    # Thread ids are not used again: who dumps before and behind the count was counted.
    if set((yield Query(_OTHERS))) != set(others):
        return False
    return _none_commits(others, counted)


def _none_commits(others: Rows, counted: Rows) -> bool:
    found = {(name or "").lower(): value or "" for name, value in counted}
    if found.get(_GALERA, "").upper() == "ON":
        return False  # the threads that apply what other nodes committed are shown as asleep
    if any(command != _DUMP for _, command in others):
        return False
    return found.get(_RUNNING) == str(1 + len(others))
