"""Checks of a primary's binary log: whether it can be replicated, and what is missing from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.checks.result import Result
from replica.handshake.primary.server import check, grant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.checks.server.access import Us
    from replica.checks.server.facts import ServerFacts
    from replica.options.config import ReplicaConfig

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
    yield _filters(facts)
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


def _filters(facts: ServerFacts) -> Result:
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
