"""Facts about one server, as a generator of steps. A query that the account may not run is answered by None.

In: answers of a logged-in connection. Out: `ServerFacts`. The account needs REPLICATION SLAVE only. SHOW REPLICA HOSTS,
SHOW BINARY LOGS and SHOW BINLOG STATUS have privileges of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replica.errors import PrerequisiteError, ServerError
from replica.handshake.primary.progress import DENIED_CODES, ListedBinlog, PrimaryAnswer, ask_primary, list_binlogs
from replica.handshake.primary.server import PROBING_ID, ServerInfo, inspect_server
from replica.handshake.registration import Query, Rows, Steps
from replica.handshake.start.start import earliest_position, gtids
from replica.protocol.gtid import GtidPosition

if TYPE_CHECKING:
    from replica.protocol.gtid import Gtid

_VARIABLES = (
    *("binlog_annotate_row_events", "binlog_do_db", "binlog_ignore_db", "binlog_storage_engine", "encrypt_binlog"),
    *("gtid_strict_mode", "innodb_flush_log_at_trx_commit", "log_bin_compress", "log_slave_updates"),
    *("net_buffer_length", "read_only", "rpl_semi_sync_master_enabled", "rpl_semi_sync_master_timeout"),
    *("rpl_semi_sync_master_wait_no_slave", "rpl_semi_sync_master_wait_point"),
    *("slave_connections_needed_for_purge", "sync_binlog"),
)
_TABLES = (
    "SELECT COUNT(*) FROM information_schema.TABLES"
    " WHERE TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
)
ER_PARSE_ERROR = 1064
"""Servers before 10.5 and MySQL do not know the keyword REPLICA."""


@dataclass(frozen=True, slots=True)
class OtherReplica:
    """A line of SHOW REPLICA HOSTS."""

    server_id: int
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Answers of a server.

    `variables` lacks those that the server does not know. None means that the server refused the query.
    """

    info: ServerInfo
    primary: PrimaryAnswer
    variables: dict[str, str] = field(default_factory=dict)
    tls: str = ""
    """TLS version and cipher of this connection; empty without."""
    binlog_state: frozenset[Gtid] = frozenset()
    """The last GTID of each domain and server id in its binlog."""
    slave_pos: GtidPosition = GtidPosition()  # noqa: RUF009  (immutable)
    oldest: GtidPosition | None = None
    """Position before its oldest binlog file. All transactions up to it are purged."""
    replicas: tuple[OtherReplica, ...] | None = None
    binlogs: tuple[ListedBinlog, ...] | None = None
    filters: tuple[str, str] | None = None
    """binlog_do_db and binlog_ignore_db."""
    tables_visible: int = 0

    def variable(self, name: str) -> str:
        """Return the value of a variable in capitals; '' if the server does not know the variable."""
        return self.variables.get(name, "").upper()


def ask_facts() -> Steps[ServerFacts | ServerInfo]:
    """Run all queries. A server that is not MariaDB is only asked for its identity."""
    # First, because later this connection would be in the list itself.
    replicas = yield from _allowed("SHOW REPLICA HOSTS")
    info = yield from inspect_server(PROBING_ID)
    if not info.is_mariadb:
        return info
    primary = yield from ask_primary("")
    variables = _pairs((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({_listed(_VARIABLES)})")))
    tls = _pairs((yield Query("SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')")))
    state, slave_pos = (yield Query("SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos"))[0]
    visible = yield Query(_TABLES)
    return ServerFacts(
        info=info,
        primary=primary,
        variables=variables,
        tls=" ".join(filter(None, (tls.get("ssl_version"), tls.get("ssl_cipher")))),
        binlog_state=frozenset(gtids(state)),
        slave_pos=GtidPosition.last_of(gtids(slave_pos)),
        oldest=(yield from _oldest()) if info.log_bin else None,
        replicas=None if replicas is None else tuple(OtherReplica(int(r[0] or 0), r[1] or "") for r in replicas),
        binlogs=(yield from list_binlogs()) if info.log_bin else None,
        filters=(yield from _filters(variables)),
        tables_visible=int(visible[0][0] or 0),
    )


def _oldest() -> Steps[GtidPosition | None]:
    try:
        return (yield from earliest_position())
    except PrerequisiteError:
        return None  # the server names no binlog file: its log is not made of files


def _filters(variables: dict[str, str]) -> Steps[tuple[str, str] | None]:
    if "binlog_do_db" in variables:  # variables in newer versions; in others only BINLOG MONITOR may see them
        return variables["binlog_do_db"], variables.get("binlog_ignore_db", "")
    rows = yield from _allowed("SHOW BINLOG STATUS")
    return (rows[0][2] or "", rows[0][3] or "") if rows else None


def _allowed(sql: str) -> Steps[Rows | None]:
    try:
        return (yield Query(sql))
    except ServerError as error:
        if error.code not in (*DENIED_CODES, ER_PARSE_ERROR):
            raise
        return None


def _pairs(rows: Rows) -> dict[str, str]:
    return {name.lower(): value for name, value in rows if name is not None and value is not None}


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f"'{name}'" for name in names)
