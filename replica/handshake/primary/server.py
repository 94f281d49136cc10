"""Prerequisites of a primary, and one error that reports all unmet ones.

`inspect_server()` queries the server, as a generator of steps. `check()` evaluates the answers without I/O. Every unmet
prerequisite comes with the exact statement that meets it. All are reported at once, so that an administrator can fix
them before the next run. Settings that are only unfavourable (no column names in the binlog, partial row images, no
checksums) are warnings.

Source: sql/repl_failsafe.cc (register_slave), 10.11, for the requirements and traces of a registration. The variables
and their effects on the binlog were measured on 10.5, 10.11 and 11.8.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from replica.errors import AuthenticationError, PrerequisiteError, ReplicaError, ServerError
from replica.handshake.registration import Query, Send, Steps, by_name, string_list
from replica.protocol.packets.packets import com_register_slave

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ER_ACCESS_DENIED = 1045
"""Error of COM_REGISTER_SLAVE without REPLICATION SLAVE (measured on 10.11 and 11.8)."""
PROBING_ID = 0
"""Server id for a registration that only tests the privilege. A running replica of ours must not find its own id in the
list. Servers accept 0 (measured on 10.11 and 11.8).
"""
OLDEST_TESTED = (10, 5)

_VARIABLES = (
    "binlog_checksum",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "datadir",
    "gtid_domain_id",
    "hostname",
    "log_bin",
    "log_slave_updates",
    "lower_case_table_names",
    "port",
    "server_id",
    "server_uid",
    "version",
    "version_comment",
    "wsrep_gtid_domain_id",
    "wsrep_gtid_mode",
    "wsrep_on",
)
PLACE_OF_A_SERVER = ("server_uid", "hostname", "port", "datadir")
"""Variables that together identify a server. server_uid is made of the port and a network card's address (10.5, 10.11,
11.8). So containers on two hosts may have the same one, and a recreated container may get another one.
"""
_UID_DIGITS = 16
_CONFIGURED = "[mariadb] in the server's configuration file and restart the server"
GALERA_GTIDS = (
    "put wsrep_gtid_mode=ON, log_slave_updates=ON, the same wsrep_gtid_domain_id and the same server_id on all nodes, "
    "and a different gtid_domain_id on each node, under [mariadb] in their configuration files, and start the cluster "
    "again with them (galera_new_cluster)"
)
"""Settings that MariaDB documents for asynchronous replicas of a cluster."""
_TRUE = ("ON", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """Settings of a server that matter to a replica, as reported by the server. None: it lacks the variable."""

    version: str
    server_id: int
    account: str
    may_replicate: bool
    log_bin: bool
    binlog_format: str | None = None
    binlog_row_image: str | None = None
    binlog_row_metadata: str | None = None
    binlog_checksum: str | None = None
    gtid_domain_id: int | None = None
    version_comment: str = ""
    uid: str = ""
    """Identity of a server's data at one place. It is stable over restarts, and different for any two servers."""
    log_slave_updates: bool = True
    lower_case: bool = False
    """Whether table names are stored in lower case or compared without regard to case (lower_case_table_names)."""
    wsrep_on: bool = False
    """Whether the server is a Galera node."""
    wsrep_gtid_mode: bool = False
    """Whether a write set has one GTID on all nodes."""
    wsrep_gtid_domain_id: int | None = None

    @property
    def is_mariadb(self) -> bool:
        # A configuration file can set any version text, but not this variable.
        return self.gtid_domain_id is not None

    @property
    def version_number(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of a server, and its fix (SQL first, if SQL can change it)."""

    check: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Findings:
    """Problems of a server. `unmet` prerequisites make replication impossible or lossy; `warnings` do not."""

    unmet: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def plain_version(greeting: str) -> str:
    """Return the version of a greeting without the prefix of servers before 11.0: 5.5.5-10.11.19-MariaDB.

    Measured: 10.5 and 10.11 send the prefix, 11.8 does not.
    """
    return greeting.removeprefix("5.5.5-")


def inspect_server(server_id: int) -> Steps[ServerInfo]:
    """Query the server's settings, and register as `server_id` to test the privilege."""
    # SHOW VARIABLES leaves out unknown variables, while SELECT @@name would fail as a whole.
    variables = by_name((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({string_list(_VARIABLES)})")))
    account = (yield Query("SELECT CURRENT_USER()"))[0][0] or ""
    domain = variables.get("gtid_domain_id")
    return ServerInfo(
        version=plain_version(variables.get("version", "")),
        version_comment=variables.get("version_comment", ""),
        server_id=int(variables.get("server_id", "0")),
        account=account,
        # MySQL would accept the command too, but is refused later, so leave no entry there.
        may_replicate=(yield from _may_register(server_id)) if domain is not None else False,
        log_bin=variables.get("log_bin", "").upper() in _TRUE,
        binlog_format=variables.get("binlog_format"),
        binlog_row_image=variables.get("binlog_row_image"),
        binlog_row_metadata=variables.get("binlog_row_metadata"),
        binlog_checksum=variables.get("binlog_checksum"),
        gtid_domain_id=None if domain is None else int(domain),
        uid=uid_of(variables),
        log_slave_updates=variables.get("log_slave_updates", "ON").upper() in _TRUE,
        lower_case=variables.get("lower_case_table_names", "0") != "0",
        wsrep_on=variables.get("wsrep_on", "").upper() in _TRUE,
        wsrep_gtid_mode=variables.get("wsrep_gtid_mode", "").upper() in _TRUE,
        wsrep_gtid_domain_id=int(variables["wsrep_gtid_domain_id"]) if "wsrep_gtid_domain_id" in variables else None,
    )


def ask_uid() -> Steps[str]:
    """Return the identity of this server, see `ServerInfo.uid`."""
    wanted = string_list(PLACE_OF_A_SERVER)
    return uid_of(by_name((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({wanted})"))))


def uid_of(variables: Mapping[str, str]) -> str:
    """Return the identity of a server from its variables.

    It is a hash, so that no path of the server gets into an offset.
    """
    place = "\0".join(variables.get(name, "") for name in PLACE_OF_A_SERVER)
    return hashlib.sha256(place.encode()).hexdigest()[:_UID_DIGITS]


def _may_register(server_id: int) -> Steps[bool]:
    # The command is the only reliable test, because roles and wildcards make SHOW GRANTS hard to interpret.
    try:
        yield Send(com_register_slave(server_id))
    except ServerError as error:
        if error.code != ER_ACCESS_DENIED:
            raise
        return False
    return True


def check(server: ServerInfo, server_id: int, *, hosts: int = 1) -> Findings:
    """Return all problems of a server for a replica with this id, which may connect to one of `hosts` servers."""
    if not server.is_mariadb:
        named = f"{server.version} ({server.version_comment})" if server.version_comment else server.version
        mysql = Finding(
            "version", f"the server is not MariaDB but {named}", "connect to a MariaDB server, 10.5 or newer"
        )
        return Findings((mysql,), ())
    return Findings(tuple(_unmet(server, server_id, hosts)), tuple(_warnings(server, hosts)))


def _unmet(server: ServerInfo, server_id: int, hosts: int) -> Iterator[Finding]:
    if not server.log_bin:
        fix = "put log_bin=binlog under [mariadb] in the server's configuration file and restart the server"
        yield Finding("log_bin", "the binary log is off (log_bin)", fix)
    if server.binlog_format != "ROW":
        what = f"binlog_format is {server.binlog_format}: changes would be logged as SQL text instead of rows"
        fix = "SET GLOBAL binlog_format = 'ROW'; (open sessions keep the old format)"
        yield Finding("binlog_format", what, fix)
    if not server.may_replicate:
        what = f"the account {server.account} lacks the privilege REPLICATION SLAVE"
        yield Finding("grant", what, grant("REPLICATION SLAVE", server.account))
    if server.server_id == server_id:
        fix = "give this replica its own server_id, or leave the option out"
        yield Finding("server_id", f"server_id {server_id} is the server's own", fix)
    if server.wsrep_on and not server.log_slave_updates:
        what = "log_slave_updates is OFF on a Galera node: changes of other nodes are not in its binlog"
        yield Finding("log_slave_updates", what, f"put log_slave_updates=ON under {_CONFIGURED}")
    if server.wsrep_on and not server.wsrep_gtid_mode and hosts > 1:
        what = (
            "wsrep_gtid_mode is OFF on a Galera node: each node gives a transaction its own GTID, and with "
            "several hosts a change of node would skip or repeat transactions"
        )
        yield Finding("wsrep_gtid_mode", what, f"{GALERA_GTIDS}; or name only one node in host")


def _warnings(server: ServerInfo, hosts: int) -> Iterator[Finding]:
    if server.binlog_row_image != "FULL":
        what = f"binlog_row_image is {server.binlog_row_image}: unchanged columns are missing from the row images"
        yield Finding("binlog_row_image", what, "SET GLOBAL binlog_row_image = 'FULL';")
    if server.binlog_row_metadata != "FULL":
        names = "column names come from the catalog and from DDL"
        what = f"binlog_row_metadata is {server.binlog_row_metadata}: {names}"
        yield Finding("binlog_row_metadata", what, "SET GLOBAL binlog_row_metadata = 'FULL';")
    if server.binlog_checksum == "NONE":
        what = "binlog_checksum is NONE: damage on disk or on the wire cannot be noticed"
        yield Finding("binlog_checksum", what, "SET GLOBAL binlog_checksum = 'CRC32';")
    if server.wsrep_on and not server.wsrep_gtid_mode and hosts == 1:
        what = "wsrep_gtid_mode is OFF on a Galera node: this replica cannot continue from another node"
        yield Finding("wsrep_gtid_mode", what, GALERA_GTIDS)
    if server.version_number < OLDEST_TESTED:
        what = f"MariaDB {server.version} is older than the oldest tested version (10.5)"
        yield Finding("version", what, "upgrade the server")


def grant(privilege: str, account: str, on: str = "*.*") -> str:
    """Return the GRANT statement for an account.

    Args:
        privilege: privilege in SQL.
        account: account in the notation of CURRENT_USER(): user@host.
        on: object of the grant in SQL.
    """
    user, _, host = account.rpartition("@")
    return f"GRANT {privilege} ON {on} TO {_quote(user)}@{_quote(host)};"


def _quote(name: str) -> str:
    # Backslashes are escapes unless the session says otherwise.
    return "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"


def refusal(findings: Findings, server: ServerInfo, where: str) -> ReplicaError | None:
    """Return one error for all unmet prerequisites of a server, or None. `where` is the name of the server in messages.

    If only a privilege is missing, the error is an AuthenticationError.
    """
    if not findings.unmet:
        return None
    numbered = [f"({number}) {one.what}" for number, one in enumerate(findings.unmet, 1)]
    fixes = "; ".join(f"({number}) {one.fix}" for number, one in enumerate(findings.unmet, 1))
    listed = numbered[0].removeprefix("(1) ") if len(numbered) == 1 else "; ".join(numbered)
    message = f"cannot replicate from {where}, MariaDB {server.version}: {listed}."
    if not server.is_mariadb:
        message = f"cannot replicate from {where}: {listed}."
    hint = f"Fix: {fixes.removeprefix('(1) ') if len(numbered) == 1 else fixes}".rstrip(";") + "."
    if len(findings.unmet) == 1 and server.is_mariadb and not server.may_replicate:
        return AuthenticationError(message, code=ER_ACCESS_DENIED, sqlstate="28000", hint=hint)
    return PrerequisiteError(message, hint=hint)


# A primary notices that a client vanished only when it next has something to send. Until then it counts the client as a
# semi-sync replica. So a replica that stops ends its dump on the primary, and a replica that starts after a crash ends
# the dump of its earlier process. Both need no privilege, because an account may end its own threads. Neither ends a
# thread unless the thread is proven to be ours.
#
# Source: the server's sql/sql_repl.cc (kill_zombie_dump_threads) and sql/repl_failsafe.cc (register_slave,
# show_slave_hosts), 10.11; its own replica ends its dump in the same way (semisync_slave.cc: kill_connection).


ER_NO_SUCH_THREAD = 1094

NAMESAKE_STEP_S = 0.25
"""Seconds between two checks whether a replica with our server id has vanished from the list of replicas."""

# The difference is the start time of the server process, even if its clock was set later. The server computes Uptime
# from the statement's time, which is UNIX_TIMESTAMP() (sql/mysqld.cc: show_starttime).
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

    Such a connection is still registered, but never receives another event.

    This state usually lasts a moment. 10.11 may keep such a thread until another replica connects (state "Waiting to
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
