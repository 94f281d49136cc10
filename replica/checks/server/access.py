"""Checks of connection, account and identity: encryption, privileges, and replicas that use our server id."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, NamedTuple

from replica.checks.result import Result
from replica.handshake.primary.server import grant

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.checks.server.facts import ServerFacts
    from replica.options.config import Endpoint, ReplicaConfig


class Us(NamedTuple):
    """Our identity to a primary."""

    server_id: int
    configured: bool
    """Whether someone configured the id."""
    settled: bool
    """Whether the id is configured or drawn for the relay directory already. If not, the first start draws one."""
    running: bool
    """Whether a replica of this relay directory is running under the same id."""
    left_open: frozenset[int]
    """Server ids of primaries that an earlier run left without a goodbye. They may not have noticed its end yet."""


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
    words = (
        f"{abs(offset_s):.3f} s {'ahead of' if offset_s > 0 else 'behind'} ours, give or take {round_trip_s / 2:.3f} s"
    )
    if abs(offset_s) > MAX_CLOCK_OFFSET_S + round_trip_s / 2:
        fix = "let both machines follow a time server (chrony, systemd-timesyncd); lag is corrected by the offset"
        yield Result("clock", "warning", f"the server's clock is {words}", fix)
    else:
        yield Result("clock", "ok", f"the server's clock is {words}")


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
