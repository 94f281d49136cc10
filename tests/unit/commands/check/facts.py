"""What a server that is set up well has said, to be changed in one place a test."""

from __future__ import annotations

import dataclasses

from replica.commands.check.machine import RelayEnd
from replica.commands.check.server import ServerFacts
from replica.daemon.config import DaemonConfig
from replica.handshake.primary.progress import PrimaryAnswer
from replica.handshake.primary.server import ServerInfo
from replica.handshake.start.resume import Stored
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.location import RelayHead, RelayLocation

NOW = 1_800_000_000.0
INFO = ServerInfo(
    version="11.8.6-MariaDB",
    server_id=1,
    account="repl@%",
    may_replicate=True,
    log_bin=True,
    binlog_format="ROW",
    binlog_row_image="FULL",
    binlog_row_metadata="FULL",
    binlog_checksum="CRC32",
    gtid_domain_id=0,
)
PRIMARY = PrimaryAnswer(
    server_id=1,
    position=GtidPosition.parse("0-1-100"),
    place=BinlogPosition("bin.000003", 5000),
    clock=NOW,
    asked_at=NOW - 0.001,
    answered_at=NOW + 0.001,
    expiry_s=10 * 86_400.0,
    max_total_bytes=None,
    file_kept=None,
    semi_sync=True,
    semi_sync_clients=1,
)
VARIABLES = {
    "binlog_annotate_row_events": "ON",
    "encrypt_binlog": "OFF",
    "gtid_strict_mode": "ON",
    "innodb_flush_log_at_trx_commit": "1",
    "log_slave_updates": "ON",
    "net_buffer_length": "131072",
    "read_only": "OFF",
    "rpl_semi_sync_master_enabled": "ON",
    "rpl_semi_sync_master_timeout": "10000",
    "rpl_semi_sync_master_wait_no_slave": "ON",
    "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
    "sync_binlog": "1",
    "wsrep_on": "OFF",
}
GOOD = ServerFacts(
    info=INFO,
    primary=PRIMARY,
    variables=VARIABLES,
    tls="TLSv1.3 TLS_AES_256_GCM_SHA384",
    binlog_state=frozenset({Gtid(0, 1, 100)}),
    oldest=GtidPosition.parse("0-1-40"),
    replicas=(),
    binlogs=(),
    filters=("", ""),
    tables_visible=3,
)


def config(**options: object) -> DaemonConfig:
    return DaemonConfig.parse({"user": "repl", **options})


def variables(**changed: str) -> ServerFacts:
    return dataclasses.replace(GOOD, variables={**VARIABLES, **changed})


def info(**changed: object) -> ServerFacts:
    return dataclasses.replace(GOOD, info=dataclasses.replace(INFO, **changed))  # type: ignore[arg-type]


def primary(**changed: object) -> ServerFacts:
    return dataclasses.replace(GOOD, primary=dataclasses.replace(PRIMARY, **changed))  # type: ignore[arg-type]


def end(position: str = "0-1-90", *, age_s: float = 3600.0, at: tuple[str, int] = ("bin.000003", 4000)) -> RelayEnd:
    """A relay log that ends so long ago."""
    reached, place = GtidPosition.parse(position), BinlogPosition(*at)
    head = RelayHead(RelayLocation(7, 900), reached, place, int(NOW - age_s))
    return RelayEnd(head, Stored(reached, place, 1))
