"""Checks of one server: account, identity, binlog, retention, semi-synchronous replication.

In: answers of a logged-in connection. Out: `ServerFacts`. The account needs REPLICATION SLAVE only. SHOW REPLICA HOSTS,
SHOW BINARY LOGS and SHOW BINLOG STATUS have privileges of their own.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from replica.commands.check.report import Result
from replica.daemon.status.lag import bytes_between, groups_between
from replica.daemon.status.page import size, span
from replica.errors import PrerequisiteError, ServerError
from replica.handshake.primary.progress import DENIED_CODES, ListedBinlog, PrimaryAnswer, ask_primary, list_binlogs
from replica.handshake.primary.server import PROBING_ID, ServerInfo, check, grant, inspect_server
from replica.handshake.registration import Query, Rows, Steps, by_name, string_list
from replica.handshake.start.start import earliest_position, gtids
from replica.protocol.gtid import GtidPosition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.commands.check.machine import RelayEnd
    from replica.options.config import Endpoint, ReplicaConfig
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
    """Line of SHOW REPLICA HOSTS."""

    server_id: int
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Answers of a server.

    `variables` has only the variables that the server knows. A None field means that the server refused the query.
    """

    info: ServerInfo
    primary: PrimaryAnswer
    variables: dict[str, str] = field(default_factory=dict)
    tls: str = ""
    """TLS version and cipher of this connection; empty without TLS."""
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
    # This query comes first, because later this connection would be in the list itself.
    replicas = yield from _allowed("SHOW REPLICA HOSTS")
    info = yield from inspect_server(PROBING_ID)
    if not info.is_mariadb:
        return info
    primary = yield from ask_primary("")
    variables = by_name((yield Query(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({string_list(_VARIABLES)})")))
    tls = by_name((yield Query("SHOW SESSION STATUS WHERE Variable_name IN ('Ssl_version', 'Ssl_cipher')")))
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


class Us(NamedTuple):
    """Identity of this replica towards a primary."""

    server_id: int
    configured: bool
    """Whether someone configured the id."""
    settled: bool
    """Whether the id is configured, or was chosen at random for the relay directory. If not, the first start chooses an
    id.
    """
    running: bool
    """Whether a replica of this relay directory is running under the same id."""
    left_open: frozenset[int]
    """Server ids of primaries that an earlier run left without a goodbye. These primaries may still list the dead dump.
    """


VERIFIED_BY_PASSWORD = (11, 4)
"""First version in which a server makes its own certificate and proves it with the account's password."""
MAX_CLOCK_OFFSET_S = 1.0
"""Maximum clock offset in seconds. Binlog timestamps have whole seconds, so a smaller offset does not show."""


def connection(facts: ServerFacts, config: ReplicaConfig, endpoint: Endpoint) -> Iterator[Result]:
    """Check the encryption of the connection, and the server's clock."""
    safe = "set tls=verify-identity and tls_ca"
    if facts.info.version_number >= VERIFIED_BY_PASSWORD:
        safe += ", or tls=verify-password, which needs no authority"
    if facts.tls:
        checked = f"tls={config.tls_mode}"
        fix = safe if config.tls_mode == "required" else ""
        unchecked = ": the server's certificate is not verified" if fix else ""
        yield Result("tls", "warning" if fix else "ok", f"{facts.tls}, {checked}{unchecked}", fix)
    elif _is_local(endpoint):
        yield Result("tls", "ok", "plain text, and it stays on this machine")
    else:
        yield Result(
            "tls",
            "warning",
            "none: every change crosses the network in plain text",
            safe,
        )
    offset_s, round_trip_s = facts.primary.clock_offset_s, facts.primary.answered_at - facts.primary.asked_at
    text = (
        f"{abs(offset_s):.3f} s {'ahead of' if offset_s > 0 else 'behind'} ours, give or take {round_trip_s / 2:.3f} s"
    )
    if abs(offset_s) > MAX_CLOCK_OFFSET_S + round_trip_s / 2:
        fix = "let both machines follow a time server (chrony, systemd-timesyncd); lag is corrected by the offset"
        yield Result("clock", "warning", f"the server's clock is {text}", fix)
    else:
        yield Result("clock", "ok", f"the server's clock is {text}")


def privileges(facts: ServerFacts) -> Iterator[Result]:
    """Check optional grants."""
    account = facts.info.account
    if facts.replicas is None:
        what = (
            "REPLICATION MASTER ADMIN is missing: another replica with our server id shows only when it disconnects us"
        )
        yield Result("grant: replicas", "note", what, grant("REPLICATION MASTER ADMIN", account))
    if facts.binlogs is None and facts.info.log_bin:
        what = "BINLOG MONITOR is missing: the lag in bytes is unknown across binlog files"
        yield Result("grant: binlogs", "note", what, grant("BINLOG MONITOR", account))
    if not facts.tables_visible:
        named = facts.info.binlog_row_metadata == "FULL"
        what = "it sees no table. The daemon needs none, but Spark asks the catalog for a table's columns"
        fix = f"{grant('SELECT', account, on='`database`.*')} (for each database that is read)"
        yield Result("grant: tables", "note" if named else "warning", what, fix)
    else:
        yield Result("grant: tables", "ok", f"tables and views that it sees: {facts.tables_visible}")


def server_ids(facts: ServerFacts, us: Us) -> Iterator[Result]:
    """Check whether another replica has our server id."""
    same = [other for other in facts.replicas or () if other.server_id == us.server_id]
    others = len(facts.replicas or ()) - len(same)
    if len(same) == 1 and us.running:
        what = f"server_id {us.server_id} is that of the replica which runs here; other replicas registered: {others}"
        yield Result("replicas", "ok", what)
    elif len(same) == 1 and facts.info.server_id in us.left_open:
        what = f"server_id {us.server_id} is registered: left over from this replica's last run, or another replica"
        yield Result(
            "replicas",
            "note",
            what,
            "run ends its own leftover connection; if it then exits with code 33, it was another replica",
        )
    elif same:
        names = ", ".join(other.host or "one without report_host" for other in same)
        what = f"server_id {us.server_id} is in use by another replica ({names}): the two would disconnect each other"
        fix = "give this replica another server_id, or leave the option out"
        if not us.configured:
            fix = "stop the other replica, or remove relay.identity from relay_dir: then a new id is generated"
        yield Result("replicas", "missing", what, fix)
    elif facts.replicas is not None:
        yield Result("replicas", "ok", f"other replicas registered: {others}, none with our server_id")


def _is_local(endpoint: Endpoint) -> bool:
    if endpoint.unix_socket or endpoint.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(endpoint.host).is_loopback
    except ValueError:
        return False


LEGACY_NET_BUFFER = 16_384
"""Default of net_buffer_length in bytes. A dump is sent in writes of this size."""


def basics(facts: ServerFacts, us: Us, hosts: int = 1) -> Iterator[Result]:
    """Report the prerequisites that every connection checks, including those that are met."""
    info = facts.info
    found = check(info, us.server_id, hosts=hosts)
    bad = {one.check: Result(one.check, "missing", one.what, one.fix) for one in found.unmet}
    poor = {one.check: Result(one.check, "warning", one.what, one.fix) for one in found.warnings}
    ours = us.server_id if us.settled else "generated at the first start"
    good = {
        "version": f"MariaDB {info.version}",
        "log_bin": "ON",
        "binlog_format": "ROW; a session with BINLOG ADMIN can still set its own",
        "binlog_row_image": "FULL",
        "binlog_row_metadata": "FULL",
        "binlog_checksum": info.binlog_checksum or "unknown",
        "grant": f"{info.account} has REPLICATION SLAVE",
        "server_id": f"{ours}; the server has {info.server_id}",
    }
    for name, what in good.items():
        yield bad.get(name) or poor.get(name) or Result(name, "ok", what)
    yield from (one for one in (*bad.values(), *poor.values()) if one.check not in good)


def binlog(facts: ServerFacts, config: ReplicaConfig) -> Iterator[Result]:
    """Check filters, replicas of replicas, Galera, and other settings that decide what the log holds."""
    yield _filter_result(facts)
    is_replica = bool(facts.slave_pos)
    if is_replica and facts.variable("log_slave_updates") == "OFF" and not facts.info.wsrep_on:
        yield Result(
            "log_slave_updates",
            "warning",
            f"OFF, and this server has replicated from another ({facts.slave_pos}): such changes are not in its binlog",
            "put log_slave_updates=ON under [mariadb] in its configuration file and restart it, or replicate from its "
            "primary",
        )
    if facts.variable("read_only") not in ("", "OFF"):
        yield Result("read_only", "note", "ON: this is a replica, or a primary that was taken out of service")
    if facts.variable("gtid_strict_mode") == "OFF":
        yield Result(
            "gtid_strict_mode",
            "note",
            "OFF: the server logs sequence numbers that go back (SET gtid_seq_no, a replay by mariadb-binlog, writes "
            "to a replica), and a replica with gtid_strict_mode stops there",
            "SET GLOBAL gtid_strict_mode = ON;",
        )
    if facts.variable("binlog_storage_engine"):
        yield Result(
            "binlog_storage_engine",
            "warning",
            f"{facts.variable('binlog_storage_engine')}: this binlog is not made of files; it was never tested here",
            "leave binlog_storage_engine out of the server's configuration file",
        )
    if facts.info.wsrep_on and facts.info.wsrep_gtid_mode:
        domain = facts.info.wsrep_gtid_domain_id
        yield Result(
            "wsrep_on",
            "note",
            f"Galera: transactions have one GTID on all nodes, in domain {domain}; what only this node has (MyISAM, "
            f"wsrep_on=OFF) is in its own domain, {facts.info.gtid_domain_id}, and no other node sends it",
        )
    if config.annotate and facts.variable("binlog_annotate_row_events") == "OFF":
        yield Result(
            "binlog_annotate_row_events",
            "warning",
            "OFF: annotate is set, but statements are not in the binlog",
            "SET GLOBAL binlog_annotate_row_events = ON;",
        )
    if facts.variable("encrypt_binlog") == "ON":
        yield Result("encrypt_binlog", "note", "ON: it is sent decrypted, and the relay log is not encrypted")
    if facts.variable("net_buffer_length") == str(LEGACY_NET_BUFFER):
        yield Result(
            "net_buffer_length",
            "note",
            "16 KB: with 128 KB a replica that catches up receives a quarter more per second",
            "SET GLOBAL net_buffer_length = 131072;",
        )


def _filter_result(facts: ServerFacts) -> Result:
    if facts.filters is None:
        return Result(
            "binlog_do_db",
            "note",
            "it is unknown whether databases are left out of the binlog (binlog_do_db, binlog_ignore_db)",
            grant("BINLOG MONITOR", facts.info.account),
        )
    only, ignored = facts.filters
    if only or ignored:
        names = f"only {only} is" if only else f"{ignored} is not"
        return Result(
            "binlog_do_db",
            "warning",
            f"{names} in the binlog: the other changes cannot be received",
            "remove binlog_do_db and binlog_ignore_db from the server's configuration file and restart it",
        )
    return Result("binlog_do_db", "ok", "no database is left out of the binlog")


SHORT_S = 86_400.0
"""Retention in seconds below which there is a warning: one day is little time to restore a failed replica."""
NEAR_S = 6 * 3600.0
NEAR_BYTES = 256 << 20


def retention(facts: ServerFacts) -> Iterator[Result]:
    """Check by which rules the server purges its binlog."""
    expiry_s, total = facts.primary.expiry_s, facts.primary.max_total_bytes
    kept = size(sum(file.size for file in facts.binlogs)) if facts.binlogs is not None else "an unknown size"
    waits = int(facts.variables.get("slave_connections_needed_for_purge") or 0)
    unless = f", and only while at least {waits} replica is connected" if waits else ""
    if expiry_s is None and total is None:
        what = f"the server never removes binlogs by itself; they have {kept} now"
        yield Result("retention", "note", what, f"{_expire(10 * 86_400, facts)} (otherwise its disk fills up)")
        return
    limits = [f"after {span(expiry_s)}"] if expiry_s is not None else []
    limits += [f"beyond {size(total)} in total"] if total is not None else []
    what = f"the server removes binlogs {' and '.join(limits)}{unless}; they have {kept} now"
    if expiry_s is not None and expiry_s < SHORT_S:
        fix = _expire(10 * 86_400, facts)
        yield Result("retention", "warning", f"{what}: a replica that is away for longer has to start again", fix)
    else:
        yield Result("retention", "ok", what)


def lag(facts: ServerFacts, end: RelayEnd) -> Iterator[Result]:
    """Check how far our relay log lags, and how much time is left. The position is known to exist on the server."""
    answer, head = facts.primary, end.head
    missing = groups_between(head.position, answer.position)
    if not missing:
        yield Result("behind", "ok", "the relay log has everything the server has")
        return
    age_s = max(0.0, answer.clock - head.timestamp) if head.timestamp else None
    parts = [f"up to {missing} transactions"]
    if end.stored.is_of(facts.info) is not False and head.primary is not None and answer.place is not None:
        distance = bytes_between(head.primary, answer.place, facts.binlogs)
        parts += [size(distance)] if distance is not None else []
    parts += [f"its last transaction is {span(age_s)} old"] if age_s is not None else []
    what = f"the relay log is behind: {', '.join(parts)}"
    # The server removes a file by the time of its last write, which is not before our last group.
    left_s = None if answer.expiry_s is None or age_s is None else answer.expiry_s - age_s
    room = _room(facts, end)
    kept = [f"for at least {span(left_s)} more"] if left_s is not None and left_s > 0 else []
    kept += [f"until {size(room)} more are written"] if room is not None and room > 0 else []
    expired = (left_s is not None and left_s <= 0) or (room is not None and room <= 0)
    if expired:
        what += "; what follows it may be removed at any moment"
    elif kept:
        what += f"; what follows it is kept {' and '.join(kept)}"
    if not expired and (left_s is None or left_s >= NEAR_S) and (room is None or room >= NEAR_BYTES):
        yield Result("behind", "note", what)
        return
    longer = _expire(int(2 * (answer.expiry_s or 0)), facts) if left_s is not None and left_s < NEAR_S else ""
    if not longer:
        longer = f"SET GLOBAL max_binlog_total_size = {2 * (answer.max_total_bytes or 0)};"
    yield Result("behind", "warning", what, f"{longer} (until the replica, which is to be started now, has caught up)")


def _room(facts: ServerFacts, end: RelayEnd) -> int | None:
    """Return how many bytes the server may write before it removes the file that we read next.

    Only the limit of the total size counts. None means unknown.
    """
    total, files = facts.primary.max_total_bytes, facts.binlogs
    ours = [number for number, file in enumerate(files or ()) if file.name == end.head.primary.file]
    if total is None or not files or not ours or end.stored.is_of(facts.info) is False:
        return None
    return total - sum(file.size for file in files[ours[0] :])


def _expire(seconds: int, facts: ServerFacts) -> str:
    if facts.info.version_number >= (10, 6):
        return f"SET GLOBAL binlog_expire_logs_seconds = {seconds};"
    return f"SET GLOBAL expire_logs_days = {-(-seconds // 86_400)};"


SHORT_TIMEOUT_MS = 1_000
"""Minimum timeout in milliseconds. A restart of the replica or one slow fsync takes that long."""


def semi_sync(facts: ServerFacts, config: ReplicaConfig) -> Iterator[Result]:
    """Check semi-synchronous replication. Without the option `semi_sync` there is at most a note."""
    enabled = facts.variable("rpl_semi_sync_master_enabled")
    if not config.semi_sync:
        if enabled == "ON":
            what = "the server has it, but this replica does not use it: no commit waits for this replica"
            yield Result("semi_sync", "note", what, "set semi_sync=true if commits are to wait for this replica")
        return
    if not enabled:
        what = "this server has no semi-synchronous replication (rpl_semi_sync_master_enabled is unknown)"
        yield Result("semi_sync", "missing", what, "set semi_sync=false, or use a server that has it")
        return
    if facts.variable("binlog_storage_engine"):
        what = "semi-synchronous replication does not work with binlog_storage_engine"
        yield Result("semi_sync", "missing", what, "set semi_sync=false, or leave binlog_storage_engine out")
        return
    if enabled != "ON":
        what = (
            "rpl_semi_sync_master_enabled is OFF: commits do not wait for replicas, and an acknowledgement protects "
            "nothing"
        )
        fix = "SET GLOBAL rpl_semi_sync_master_enabled = ON;"
        yield Result("semi_sync", "warning", what, fix)
    else:
        waits = "commits wait" if facts.primary.semi_sync else "commits do not wait at this moment"
        clients = facts.primary.semi_sync_clients or 0
        yield Result("semi_sync", "ok", f"enabled, {waits}; semi-synchronous replicas connected: {clients}")
    yield _wait_point(facts)
    yield _while_away(facts)
    yield _durability(facts)
    if config.ack_policy == "receive":
        what = "receive: acknowledged before it is on disk; a power cut here can lose what was acknowledged"
        yield Result("ack_policy", "warning", what, "set ack_policy=fsync")


def _wait_point(facts: ServerFacts) -> Result:
    if facts.variable("rpl_semi_sync_master_wait_point") == "AFTER_SYNC":
        return Result("semi_sync wait", "ok", "AFTER_SYNC: no one sees a change before it is acknowledged")
    return Result(
        "semi_sync wait",
        "warning",
        "AFTER_COMMIT: other sessions see a change while its COMMIT still waits; after a failover it may be gone",
        "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC';",
    )


def _while_away(facts: ServerFacts) -> Result:
    timeout_ms = int(facts.variables.get("rpl_semi_sync_master_timeout") or 0)
    each = f"{timeout_ms / 1000:g} s"
    if facts.variable("rpl_semi_sync_master_wait_no_slave") == "OFF":
        what = (
            f"when the last replica leaves, commits continue at once and unprotected; for a silent one they wait {each}"
        )
    else:
        what = f"without a replica the next commit waits {each}, then all continue unprotected until one has caught up"
    if timeout_ms < SHORT_TIMEOUT_MS:
        fix = "SET GLOBAL rpl_semi_sync_master_timeout = 10000;"
        return Result("semi_sync timeout", "warning", f"{what}: one slow write to disk ends the protection", fix)
    return Result("semi_sync timeout", "ok", what)


def _durability(facts: ServerFacts) -> Result:
    loose = [
        f"{name}={value}"
        for name, value in (
            ("sync_binlog", facts.variable("sync_binlog")),
            ("innodb_flush_log_at_trx_commit", facts.variable("innodb_flush_log_at_trx_commit")),
        )
        if value not in ("1", "3" if name.startswith("innodb") else "1", "")
    ]
    if not loose:
        return Result("semi_sync durability", "ok", "the server writes every commit to its disk (sync_binlog=1)")
    return Result(
        "semi_sync durability",
        "warning",
        f"{' and '.join(loose)}: a power cut at the server can lose commits that this replica has; the server would "
        "then be refused as diverged",
        "SET GLOBAL sync_binlog = 1; SET GLOBAL innodb_flush_log_at_trx_commit = 1;",
    )
