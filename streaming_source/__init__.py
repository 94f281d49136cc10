"""MariaDB changes in Spark: the data source `mariadb-binlog`, and helpers for the queries that read it.

Spark finds the source by its name; nothing here has to be imported for it. The helpers run in your own driver script,
on classic Spark and on Spark Connect: `latest_per_key` and `upsert_into` for MERGE, `lag` for people, `started` for
several queries in one application. They are imported when they are asked for, because every Python process of Spark
imports this package.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streaming_source.queries.latest_changes import latest_per_key
    from streaming_source.queries.query_lag import Lag, lag
    from streaming_source.queries.query_start import started
    from streaming_source.queries.upserts import upsert_into

__all__ = ["Lag", "lag", "latest_per_key", "started", "upsert_into"]

_MODULES = {
    "Lag": "queries.query_lag",
    "lag": "queries.query_lag",
    "latest_per_key": "queries.latest_changes",
    "started": "queries.query_start",
    "upsert_into": "queries.upserts",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
