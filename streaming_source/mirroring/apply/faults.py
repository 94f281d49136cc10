"""The faults that writing a target meets: which are the table's own, which pass, and which are of the machine.

In: the errors of a batch's tables. Out: the one that has to end the query, so that the batch comes again as a whole;
None where each table that failed can be set aside by itself. Told by what Spark says: an error of its analysis, or a
constraint of the target, is the table's. A job that was broken off, a lost executor, or a full disk where no other
table could be written either, is no table's fault.

A full disk becomes a DiskFullError that names the file or folder that was not written, where Java's words name one.
They stand in the causes of the error, below those of Spark and Delta.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from replica.errors import DataLossError, DisconnectedError, DiskFullError, RelayError
from streaming_source.queries.short_errors import SPARK_ERRORS, told_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from replica.errors import ReplicaError

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
_SAID_OF_FULL: Final = ("no space left on device", "disk quota exceeded")
_FULL: Final = (*_SAID_OF_FULL, "read-only file system", "too many open files")
"""What a disk says, which may be that of one target or of all."""
_CAUSES: Final = 12
"""The most causes that are looked at, one below the other."""
_PLACE: Final = re.compile(r"(?:[a-z][a-z0-9+]*:)?/[^\s:'\"`,)\]]+", re.IGNORECASE)
_HINT: Final = (
    "Make room there, and start the mirror again: the batch that failed comes again as a whole, and nothing is lost."
)


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


def texts_of(error: Exception) -> list[str]:
    """Return what an error says, and what each of its causes says, without stacks."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    texts = [] if isinstance(error, Py4JJavaError) else [str(error)]
    for _ in range(_CAUSES):
        if java is None:
            break
        texts.append(str(java.toString()))
        java = java.getCause()
    return texts


def full_disk(error: Exception, writing: str) -> DiskFullError | None:
    """Return the error to raise instead; `writing`: what was being written, for where no place is named."""
    if not isinstance(error, SPARK_ERRORS):
        return None
    texts = texts_of(error)
    if not any(words in text.lower() for text in texts for words in _SAID_OF_FULL):
        return None
    place = next((found[0] for text in texts if (found := _PLACE.search(text)) is not None), None)
    where = writing if place is None else f"{writing}: it has {place.rstrip('.')}"
    return DiskFullError(f"a disk is full, met while writing {where}.", hint=_HINT)


@contextlib.contextmanager
def full_disk_told(writing: str) -> Iterator[None]:
    """Raise a DiskFullError for an error that comes of a full disk."""
    try:
        yield
    except SPARK_ERRORS as error:
        full = full_disk(error, writing)
        if full is None:
            raise
        raise full from None
