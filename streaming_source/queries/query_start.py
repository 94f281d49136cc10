"""The start of several queries in one application: each starts when the one before it has its source process.

Spark keeps one entry for a source that it found by its name, for all sessions of the driver. The first start of a query
writes variables into it without a lock (PythonStreamingSourceRunner.init, Spark 4.2.1); two at the same moment can
leave it damaged, and then no query of the source can send a task until the driver is started again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

POLL_S: Final = 0.1
_BEFORE: Final = "Initializing"  # sources, and StreamExecution itself


def started(query: StreamingQuery) -> StreamingQuery:
    """Wait until a query has its source process, some two seconds after `start()`, or has ended.

    Args:
        query: what `writeStream.start()` gave.

    Returns:
        The same query.
    """
    while query.isActive and query.status["message"].startswith(_BEFORE):
        time.sleep(POLL_S)
    return query
