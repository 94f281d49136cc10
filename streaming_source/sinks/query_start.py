"""The start of queries, one after the other, and again on a busy machine.

`started` returns when a query has its source process, so that the next query can start. Spark keeps one entry, for all
sessions of the driver, for a source that it found by its name. The first start of a query writes variables into it
without a lock (PythonStreamingSourceRunner.init, Spark 4.2.1). Two starts at the same moment can damage it, and then no
query of the source can send a task until the driver restarts.

Spark waits ten seconds for the source process, a constant in its code (PythonWorkerFactory.createSimpleWorker, Spark
4.2.1 and 4.3.0; its other Python processes have a minute). The process imports PySpark, numpy and pyarrow before it
answers, which takes a third of a CPU second, and nothing of this package. On a machine that gives it less than a
thirtieth of a core, the query ends before it begins.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

POLL_S: Final = 0.1
TRIES: Final = 6
"""Starts of a query, a minute in all. A Python that cannot start at all gives the same message, and would fail
forever.
"""
_BEFORE: Final = "Initializing"  # the message begins so for sources, and for StreamExecution itself
TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark's message if one of its Python processes took more than ten seconds to start."""
_log = logging.getLogger(__name__)


def started(query: StreamingQuery | DataStreamWriter) -> StreamingQuery:
    """Wait until a query has its source process, some two seconds after `start()`, or has ended.

    Args:
        query: the result of `writeStream.start()`, or the configured `writeStream` itself, which is started here. In
            the second case, the query is started again, up to five times, if Spark gave up waiting for its Python
            process on a busy machine ("Python worker failed to connect back"). Each restart logs a warning.

    Returns:
        The query.
    """
    if not hasattr(query, "start"):
        return _waited_for(query)
    for number in range(2, TRIES + 1):
        running = _waited_for(query.start())
        if not _was_too_slow(running):
            return running
        _log.warning(
            "Spark gave up starting this query, because its Python process took more than ten seconds to start: this "
            "machine is busy. Nothing is lost; the query is started again (%d of %d)",
            number,
            TRIES,
        )
    return _waited_for(query.start())


def _waited_for(query: StreamingQuery) -> StreamingQuery:
    while query.isActive and query.status["message"].startswith(_BEFORE):
        time.sleep(POLL_S)
    return query


def _was_too_slow(query: StreamingQuery) -> bool:
    return not query.isActive and TOO_SLOW in str(query.exception() or "")
