"""Check of semi-synchronous replication: whether the primary waits for us, how long, and what happens without us."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.checks.result import Result

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.checks.server.facts import ServerFacts
    from replica.options.config import ReplicaConfig

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
