"""The prerequisites of a primary that can be replicated from, and how to say all that is wrong in one go.

`inspect_server()` asks, as a generator of steps; `check()` judges, without I/O. Every unmet prerequisite comes with the
exact statement that meets it, because an administrator who fixes one thing a run gives up at the third. What only makes
life harder (no column names in the binlog, partial row images, no checksums) is a warning.

Source: sql/repl_failsafe.cc (register_slave), 10.11, for what a registration needs and leaves behind; the variables and
what each changes in the binlog were measured on 10.5, 10.11 and 11.8.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.errors import AuthenticationError, PrerequisiteError, ReplicaError, ServerError
from replica.handshake.registration import Query, Rows, Send, Steps
from replica.protocol.packets.commands import com_register_slave

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ER_ACCESS_DENIED = 1045
"""What COM_REGISTER_SLAVE answers without REPLICATION SLAVE (measured on 10.11 and 11.8)."""
PROBING_ID = 0
"""Registers without being taken for a replica: ours, if it runs, must not meet its own id in the list. Servers take it
(measured on 10.11 and 11.8)."""
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
"""What tells servers apart. server_uid is made of the port and a network card's address (10.5, 10.11, 11.8): two
containers on two hosts may have the same, and one that is made again may get another."""
_UID_DIGITS = 16
_CONFIGURED = "[mariadb] in the server's configuration file and restart the server"
GALERA_GTIDS = (
    "put wsrep_gtid_mode=ON, log_slave_updates=ON, the same wsrep_gtid_domain_id and the same server_id on all nodes, "
    "and on each node a gtid_domain_id of its own, under [mariadb] in their configuration files, and start the cluster "
    "again with them (galera_new_cluster)"
)
"""What MariaDB documents for asynchronous replicas of a cluster."""
_TRUE = ("ON", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerInfo:
    """A server's settings that matter to a replica, as it told them; None where it does not know the variable."""

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
    """Equal for one server's data at one place, over restarts, and never for two servers."""
    log_slave_updates: bool = True
    lower_case: bool = False
    """The names of tables are stored in small letters, or met without regard to case (lower_case_table_names)."""
    wsrep_on: bool = False
    """A Galera node."""
    wsrep_gtid_mode: bool = False
    """Whether a write set has one GTID on all nodes."""
    wsrep_gtid_domain_id: int | None = None

    @property
    def is_mariadb(self) -> bool:
        # The version text can be set to anything in a configuration file; this variable cannot.
        return self.gtid_domain_id is not None

    @property
    def version_number(self) -> tuple[int, ...]:
        return tuple(int(part) for part in re.findall(r"\d+", self.version)[:2])


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be, and what to do about it (SQL first, where SQL can change it)."""

    check: str
    what: str
    fix: str


@dataclass(frozen=True, slots=True)
class Findings:
    """`unmet` prerequisites make replication impossible or lossy; `warnings` do not."""

    unmet: tuple[Finding, ...]
    warnings: tuple[Finding, ...]


def plain_version(greeting: str) -> str:
    """Cut '5.5.5-10.11.19-MariaDB' to '10.11.19-MariaDB': the prefix that servers before 11.0 send is no version.

    Measured: 10.5 and 10.11 send it, 11.8 does not.
    """
    return greeting.removeprefix("5.5.5-")


def inspect_server(server_id: int) -> Steps[ServerInfo]:
    """Ask the server about itself; register as `server_id` to find out whether the account may."""
    names = ", ".join(f"'{name}'" for name in _VARIABLES)
    # SHOW VARIABLES leaves out what a server does not know, where SELECT @@name would fail as a whole.
    variables = _pairs((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")))
    account = (yield Query("SELECT CURRENT_USER()"))[0][0] or ""
    domain = variables.get("gtid_domain_id")
    return ServerInfo(
        version=plain_version(variables.get("version", "")),
        version_comment=variables.get("version_comment", ""),
        server_id=int(variables.get("server_id", "0")),
        account=account,
        # MySQL would understand the command too, but it is refused anyway: do not leave an entry there.
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
    """Return the text that tells this server from all others."""
    names = ", ".join(f"'{name}'" for name in PLACE_OF_A_SERVER)
    return uid_of(_pairs((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))))


def uid_of(variables: Mapping[str, str]) -> str:
    """Return the same in short, from the server's variables: a hash, so that no path of the server gets into an
    offset.
    """
    place = "\0".join(variables.get(name, "") for name in PLACE_OF_A_SERVER)
    return hashlib.sha256(place.encode()).hexdigest()[:_UID_DIGITS]


def _pairs(rows: Rows) -> dict[str, str]:
    return {name.lower(): value for name, value in rows if name is not None and value is not None}


def _may_register(server_id: int) -> Steps[bool]:
    # The command itself is the one reliable probe: roles and wildcards make SHOW GRANTS hard to read.
    try:
        yield Send(com_register_slave(server_id))
    except ServerError as error:
        if error.code != ER_ACCESS_DENIED:
            raise
        return False
    return True


def check(server: ServerInfo, server_id: int, *, hosts: int = 1) -> Findings:
    """Find everything that stands between this server and a replica with this id, which may go to one of `hosts`."""
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
        fix = "give this replica a server_id of its own, or leave the option out"
        yield Finding("server_id", f"server_id {server_id} is the server's own", fix)
    if server.wsrep_on and not server.log_slave_updates:
        what = "log_slave_updates is OFF on a Galera node: what other nodes write is not in its binlog"
        yield Finding("log_slave_updates", what, f"put log_slave_updates=ON under {_CONFIGURED}")
    if server.wsrep_on and not server.wsrep_gtid_mode and hosts > 1:
        what = (
            "wsrep_gtid_mode is OFF on a Galera node: each node gives a transaction a GTID of its own, and with "
            "several hosts a change of node would skip or repeat transactions"
        )
        yield Finding("wsrep_gtid_mode", what, f"{GALERA_GTIDS}; or leave one node in host")


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
        what = "wsrep_gtid_mode is OFF on a Galera node: this replica cannot go on from another node"
        yield Finding("wsrep_gtid_mode", what, GALERA_GTIDS)
    if server.version_number < OLDEST_TESTED:
        what = f"MariaDB {server.version} is older than any tested (10.5)"
        yield Finding("version", what, "upgrade the server")


def grant(privilege: str, account: str, on: str = "*.*") -> str:
    """Return the statement that gives an account (as CURRENT_USER() names it) a privilege."""
    user, _, host = account.rpartition("@")
    return f"GRANT {privilege} ON {on} TO {_quote(user)}@{_quote(host)};"


def _quote(name: str) -> str:
    # Backslashes are escapes unless the session says otherwise.
    return "'" + name.replace("\\", "\\\\").replace("'", "''") + "'"


def refusal(findings: Findings, server: ServerInfo, where: str) -> ReplicaError | None:
    """Return the one error for all unmet prerequisites, or None. A missing privilege alone is an
    AuthenticationError.
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
