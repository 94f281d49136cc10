"""MariaDB changes in Spark: the data source `mariadb-binlog`, and helpers for queries that read it.

Spark finds the source by its name, so a query imports nothing from here. The helpers run in your driver script, on
classic Spark and on Spark Connect:

* `latest_per_key` and `upsert_into` prepare changes for MERGE.
* `lag` reports how far a query is, and `started` waits for a query when an application runs several.
* `mirror` keeps tables of a server equal in the lakehouse. `mirror_status` reports the state of its tables,
  `mirror_report` writes a page about them, `mirror_tables` reads them at one position, and `mirror_resnapshot`
  re-snapshots some of them.
* `audit` compares tables with their copies.
* `MariaDbBinlogSource` is for `spark.dataSource.register`, if Spark does not find the source.

These names are public, as docs/api.md describes them. Every other module and name may change without notice. A public
name is imported on its first use, because every Python process of Spark imports this package.
"""

from __future__ import annotations

from replica.lazy_imports import on_demand

TYPE_CHECKING = False  # importing typing takes longer than the rest of this file
if TYPE_CHECKING:
    from streaming_source.auditing.call import audit
    from streaming_source.auditing.result import AuditResult, Difference, TableAudit
    from streaming_source.mirroring.call import mirror
    from streaming_source.mirroring.control.report import mirror_report
    from streaming_source.mirroring.control.status import mirror_status, mirror_tables
    from streaming_source.mirroring.reading.resnapshot import mirror_resnapshot
    from streaming_source.sinks.queries import started
    from streaming_source.sinks.query_lag import Lag, lag
    from streaming_source.sinks.upserts import latest_per_key, upsert_into
    from streaming_source.source.data_source import MariaDbBinlogSource

__all__ = [
    "AuditResult",
    "Difference",
    "Lag",
    "MariaDbBinlogSource",
    "TableAudit",
    "audit",
    "lag",
    "latest_per_key",
    "mirror",
    "mirror_report",
    "mirror_resnapshot",
    "mirror_status",
    "mirror_tables",
    "started",
    "upsert_into",
]

__getattr__, __dir__ = on_demand(
    __name__,
    {
        "AuditResult": "auditing.result",
        "Difference": "auditing.result",
        "Lag": "sinks.query_lag",
        "MariaDbBinlogSource": "source.data_source",
        "TableAudit": "auditing.result",
        "audit": "auditing.call",
        "lag": "sinks.query_lag",
        "latest_per_key": "sinks.upserts",
        "mirror": "mirroring.call",
        "mirror_report": "mirroring.control.report",
        "mirror_resnapshot": "mirroring.reading.resnapshot",
        "mirror_status": "mirroring.control.status",
        "mirror_tables": "mirroring.control.status",
        "started": "sinks.queries",
        "upsert_into": "sinks.upserts",
    },
    renamed={"mirror_resync": "mirror_resnapshot"},
)
