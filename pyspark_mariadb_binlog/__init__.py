"""MariaDB changes and tables for Spark and Arrow: the public names of this project.

Spark needs no import: it finds `format("mariadb-binlog")` through `DefaultSource`. Import names from here in your own
driver script, notebook or service. docs/api.md describes each name; `pyspark_mariadb_binlog.errors` has the errors.
A name is loaded when it is first used, because Spark imports this package in every session, also in sessions that never
use it.
"""

from __future__ import annotations

from importlib import import_module

from pyspark_mariadb_binlog import discovery
from pyspark_mariadb_binlog.discovery import DefaultSource as DefaultSource

TYPE_CHECKING = False  # importing typing takes longer than the rest of this file
if TYPE_CHECKING:
    from replica import ChangeReader, EmbeddedReplica, GtidPosition, ReplicaConfig, decode_files, read_relay_log
    from replica.version import __version__ as __version__
    from streaming_source import (
        AuditResult,
        Difference,
        Lag,
        MariaDbBinlogSource,
        TableAudit,
        audit,
        lag,
        latest_per_key,
        mirror,
        mirror_report,
        mirror_resnapshot,
        mirror_status,
        mirror_tables,
        started,
        upsert_into,
    )

__all__ = [
    "AuditResult",
    "ChangeReader",
    "Difference",
    "EmbeddedReplica",
    "GtidPosition",
    "Lag",
    "MariaDbBinlogSource",
    "ReplicaConfig",
    "TableAudit",
    "audit",
    "decode_files",
    "lag",
    "latest_per_key",
    "mirror",
    "mirror_report",
    "mirror_resnapshot",
    "mirror_status",
    "mirror_tables",
    "read_relay_log",
    "started",
    "upsert_into",
]

_UNLISTED = ("__version__", "mirror_resync")
"""Names that are found and not listed: the version, and a former name."""


def __getattr__(name: str) -> object:
    if name not in __all__ and name not in _UNLISTED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if discovery.reason:
        raise ImportError(f"{name} cannot be loaded: {discovery.reason}")
    replica = import_module("replica")
    own = name in replica.__all__ or name == "__version__"
    return getattr(replica if own else import_module("streaming_source"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
