"""Running queries: their start, parallel work, short errors, jobs of ended executions.

`started` returns when a query has its source process, so that the next query can start. Spark keeps one entry, for all
sessions of the driver, for a source that it found by its name. The first start of a query writes variables into this
entry without a lock (PythonStreamingSourceRunner.init, Spark 4.2.1). Two starts at the same moment can damage the
entry, and then no query of the source can send a task until the driver restarts.

Spark waits ten seconds for the source process, a constant in its code (PythonWorkerFactory.createSimpleWorker, Spark
4.2.1 and 4.3.0; its other Python processes have a minute). The process imports PySpark, numpy and pyarrow before it
answers, which takes a third of a CPU second, and nothing of this package. On a machine that gives it less than a
thirtieth of a core, the query ends before it begins.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

POLL_S: Final = 0.1
TRIES: Final = 6
"""Most starts of a query, a minute in all. A Python that can never start gives the same message, and would fail
forever.
"""
_BEFORE: Final = "Initializing"  # the message begins so for sources, and for StreamExecution itself
TOO_SLOW: Final = "Python worker failed to connect back"
"""Spark's message if one of its Python processes took more than ten seconds to start."""
_log = logging.getLogger(__name__)
_WIRE: Final = (logging.getLogger("py4j.clientserver"), logging.getLogger("py4j.java_gateway"))
"""Loggers of Py4J. At the level DEBUG they print every message to and from Java."""


def started(query: StreamingQuery | DataStreamWriter) -> StreamingQuery:
    """Wait until a query has its source process, some two seconds after `start()`, or has ended.

    Args:
        query: the result of `writeStream.start()`, or the configured `writeStream` itself. The second is started here,
            up to five times if Spark gives up waiting for its Python process ("Python worker failed to connect back").

    Returns:
        The query.

    Raises:
        StorageError: `writeStream` has a checkpoint in a bucket that refuses requests, does not exist, or does not
            answer.
    """
    if not hasattr(query, "start"):
        return _waited_for(query)
    from streaming_source.sinks.checkpoint import check_writer

    check_writer(query)
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


# `forget_ended` runs between two micro-batches of a query and makes Spark's scheduler drop the jobs of ended
# executions. DAGScheduler keeps the jobs of each execution until the execution ends (activeQueryToJobs,
# cleanupQueryJobs). Commands of Delta start jobs for an execution that has just ended, and the scheduler never drops
# these jobs. Each holds its plan and the table's snapshot: some 20 MB for a batch of MERGEs into ten tables. A driver
# of 1 GB fails after thirty such batches (Spark 4.2.1, Delta 4.4.0).


def forget_ended(spark: SparkSession) -> int:
    """Make the scheduler drop the jobs of all ended SQL executions; return the number of these executions.

    The call has no effect if Spark's scheduler has no such list or another one, or on the server of Spark Connect.
    """
    if getattr(spark, "_jvm", None) is None:
        return 0
    try:
        # Every thread of the JVM can look up a running execution by its id.
        executions = spark._jvm.org.apache.spark.sql.execution.SQLExecution  # noqa: SLF001
        scheduler = spark.sparkContext._jsc.sc().dagScheduler()  # noqa: SLF001  (there is no public API)
        kept = [int(number) for number in scheduler.activeQueryToJobs().keySet().toArray()]
        ended = [number for number in kept if executions.getQueryExecution(number) is None]
        for number in ended:
            scheduler.cleanupQueryJobs(number)
    except (Py4JError, TypeError) as error:  # a name that does not exist, or has another type
        _log.debug("Spark's scheduler could not be asked for the executions that it keeps: %s", type(error).__name__)
        return 0
    return len(ended)


# `query.stop()` cancels the job of the running batch. The function of foreachBatch then fails with Java's error text
# and stack, which have 8 to 12 thousand characters. Spark (4.2) searches that text for the name of an interruption. Its
# regular expression takes 300 bytes of stack for each character after "An error occurred while calling". From 1200 to
# 3500 characters on, depending on what the JVM has compiled, the thread of the query ends in a StackOverflowError.


SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""Exceptions of Spark. The second is for errors without a class in pyspark.errors, such as those of Delta."""
LONGEST_TEXT = 600
"""Most characters of a text. This is half of those that overflowed the 1 MB stack of a Java thread in the slowest
execution mode of the JVM.
"""


def message_of(error: Exception) -> str:
    """Return the text of an error without Java's stack."""
    return str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)


def first_line(error: Exception) -> str:
    """Return the first line of the text of an error. The rest is the plan, or the place of an error in SQL."""
    return message_of(error).strip().splitlines()[0]


def without_plan(error: Exception) -> str:
    """Return the text of an error up to Spark's plan."""
    return message_of(error).partition(";\n")[0].strip()


class ShortJavaError(Py4JJavaError):
    """Error of a Spark job with Java's first words, for callers that catch Py4JJavaError.

    `java_exception` has the rest.
    """

    def __str__(self) -> str:
        # Spark searches for these words. Without them it takes a stopped query for a failed one.
        text = f"py4j.protocol.Py4JJavaError: An error occurred while calling Spark: {self.java_exception.toString()}"
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} …"


@contextlib.contextmanager
def short_java_errors() -> Iterator[None]:
    """Raise errors of Spark's jobs as `ShortJavaError`. Errors with a class in pyspark.errors are not changed."""
    try:
        yield
    except Py4JJavaError as error:
        raise ShortJavaError(error.errmsg, error.java_exception) from None


@contextlib.contextmanager
def unlogged_calls() -> Iterator[None]:
    """Keep this thread's calls of Java out of Py4J's debug log, which has all their arguments and results."""
    thread = threading.get_ident()

    def logged(record: logging.LogRecord) -> bool:
        return record.thread != thread or record.levelno > logging.DEBUG

    for log in _WIRE:
        log.addFilter(logged)
    try:
        yield
    finally:
        for log in _WIRE:
            log.removeFilter(logged)


# `side_by_side` returns the results in the order of the items. After an error it begins no further items, and raises
# the error when the running ones are done.


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(
    spark: SparkSession, work: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int, name: str
) -> list[_Result]:
    """Return the results of `work` for each item.

    Jobs of the threads count as those of the caller's query, as far as the session has such properties.

    Args:
        spark: the session.
        work: the function to call.
        items: its arguments.
        at_once: most items at a time.
        name: prefix of the threads' names.
    """
    from pyspark import inheritable_thread_target
    from pyspark.sql import is_remote

    in_thread = work if is_remote() else inheritable_thread_target(spark)(work)
    with ThreadPoolExecutor(at_once, name) as pool:
        return list(pool.map(in_thread, items))
