"""The faults that writing a target meets: which are the table's own, which pass, and which are of the machine.

In: the errors of a batch's tables. Out: the one that has to end the query, so that the batch comes again as a whole;
None where each table that failed can be set aside by itself. Told by what Spark says: an error of its analysis, or a
constraint of the target, is the table's. A job that was broken off, a lost executor, or a full disk where no other
table could be written either, is no table's fault.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from replica.errors import DataLossError, DisconnectedError, RelayError
from streaming_source.mirroring.full_disk import FULL, texts_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from replica.errors import ReplicaError

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""What Spark raises; the second is what it has no class of its own for, as errors of Delta."""
_BROKEN_OFF: Final = ("cancel", "interrupt", "stopped sparkcontext", "sparkcontext was shut down")
"""What Spark says of a job that was ended because the query was."""
_LOST: Final = (
    "executorlostfailure",
    "executor heartbeat timed out",
    "fetchfailed",
    "metadatafetchfailed",
    "failed to connect back",
    "worker exited unexpectedly",
    "outofmemoryerror",
    "connection refused",
    "connection reset",
)
"""What Spark says where a machine, an executor or its worker was lost."""
_FULL: Final = (*FULL, "read-only file system", "too many open files")
"""What a disk says, which may be that of one target or of all."""


def fault_of_all(errors: Collection[Exception], *, written: int) -> Exception | None:
    """Return the error that is no table's fault; `written`: tables of the batch that could be written."""
    for error in errors:
        if not isinstance(error, SPARK_ERRORS):
            continue
        if of_machine(error):
            return error
        texts = texts_of(error)
        if _names(texts, RelayError) or _names(texts, DataLossError):  # the rows of the batch cannot be read
            return error
        if not written and any(words in text.lower() for text in texts for words in _FULL):
            return error
    return None


def raise_fault(error: Exception, *, written: int) -> None:
    """Raise an error that is not the fault of the one table that met it; `written` as with `fault_of_all`."""
    fault = fault_of_all([error], written=written)
    if fault is not None:
        raise fault from None


def of_machine(error: Exception) -> bool:
    """Tell whether Spark broke a job off, or lost an executor."""
    told = told_by(error).lower() if isinstance(error, SPARK_ERRORS) else ""
    return any(words in told for words in (*_BROKEN_OFF, *_LOST))


def is_away(error: Exception) -> bool:
    """Tell whether the server could not be reached."""
    return isinstance(error, DisconnectedError) or (
        isinstance(error, SPARK_ERRORS) and _names((told_by(error), *texts_of(error)), DisconnectedError)
    )


def _names(texts: Collection[str], kind: type[ReplicaError]) -> bool:
    """Tell whether a task ended with an error of ours of a kind: Spark passes it on as text, with others' around it."""
    return any(f"{kind.__name__}: " in text for text in texts)


def may_pass(error: Exception) -> bool:
    """Tell whether writing the table may go well when it is tried again from its beginning."""
    return isinstance(error, SPARK_ERRORS) and not isinstance(error, AnalysisException)


def told_by(error: Exception) -> str:
    """Return what an error says, without the stack of Java."""
    return str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)
