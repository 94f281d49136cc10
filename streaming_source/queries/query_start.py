"""The start of queries: each has its source process before the next one starts, and is tried again on a busy machine.

Spark keeps one entry for a source that it found by its name, for all sessions of the driver. The first start of a query
writes variables into it without a lock (PythonStreamingSourceRunner.init, Spark 4.2.1); two at the same moment can
leave it damaged, and then no query of the source can send a task until the driver is started again.

Spark waits ten seconds for the source process, which is a number in its code (PythonWorkerFactory.createSimpleWorker,
Spark 4.2.1 and 4.3.0; all its other Python processes have a minute). The process imports PySpark, numpy and pyarrow
before it answers, a third of a CPU second, and nothing of ours. A machine that gives it less than a thirtieth of a
core is too slow, and the query ends before it began.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

POLL_S: Final = 0.1
TRIES: Final = 6
"""A minute in all. A Python that cannot start at all is told by the same words, and would fail for ever."""
_BEFORE: Final = "Initializing"  # sources, and StreamExecution itself
TOO_SLOW: Final = "Python worker failed to connect back"
"""What Spark says where a Python process of its took more than ten seconds to start."""
_log = logging.getLogger(__name__)


def started(query: StreamingQuery | DataStreamWriter) -> StreamingQuery:
    """Wait until a query has its source process, some two seconds after `start()`, or has ended.

    Args:
        query: what `writeStream.start()` gave; or the `writeStream` itself with all that it needs, which is started
            here. Then the query is started again, up to five times and each time with a warning in the log, where the
            machine is so busy that Spark gave up waiting for its Python process ("Python worker failed to connect
            back").

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
            "machine is busy. Nothing is lost, it is started again (%d of %d)",
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
