"""Classification of errors that occur while targets are written: of a table, transient, or of the machine.

In: the errors of a micro-batch's tables. Out: the error that has to end the query, so that Spark repeats the
micro-batch, or None if each failed table can be suspended. Analysis errors of Spark and violated constraints concern
one table. Cancelled jobs and lost executors end the query. A full disk ends it only if no other table could be written.

A full disk becomes a DiskFullError that names the file or folder, if Java's error text names one; a fault of an object
store becomes a StorageError that names the bucket. Java's text is in the causes of the error, below the texts of Spark
and Delta.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException

from replica.errors import DataLossError, DiskFullError, RelayError, StorageError
from streaming_source.sinks.queries import SPARK_ERRORS, message_of
from streaming_source.sinks.storage_faults import bucket_fault, names_kind, texts_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

_BROKEN_OFF: Final = ("cancel", "interrupt", "stopped sparkcontext", "sparkcontext was shut down")
"""Texts of Spark for a job that was cancelled because its query ended."""
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
"""Texts of Spark for the loss of a machine, an executor or its worker."""
_DISK_FULL: Final = ("no space left on device", "disk quota exceeded")
_FULL: Final = (*_DISK_FULL, "read-only file system", "too many open files")
"""Texts of a disk fault, which may concern one target or all."""
_PLACE: Final = re.compile(r"(?:[a-z][a-z0-9+]*:)?/[^\s:'\"`,)\]]+", re.IGNORECASE)
_HINT: Final = (
    "Free space on the disk, and start the mirror again. It repeats the failed batch as a whole, and nothing is lost."
)


def fault_of_all(errors: Collection[Exception], *, written: int) -> Exception | None:
    """Return the error that has to end the query, or None if every error concerns only its table.

    Args:
        errors: the errors of the failed tables.
        written: how many tables of the micro-batch were written.
    """
    for error in errors:
        if isinstance(error, StorageError):  # of an Iceberg catalog, which all targets share
            return error
        if not isinstance(error, SPARK_ERRORS):
            continue
        if of_machine(error):
            return error
        texts = texts_of(error)
        if names_kind(texts, RelayError) or names_kind(texts, DataLossError):  # no table's rows can be read
            return error
        if not written and any(phrase in text.lower() for text in texts for phrase in _FULL):
            return error
        if not written and bucket_fault(error, "") is not None:
            return error
    return None


def raise_fault(error: Exception, *, written: int) -> None:
    """Raise the error of a table if it concerns more than this table.

    Args:
        error: the error of the table.
        written: how many tables of the micro-batch were written.
    """
    fault = fault_of_all([error], written=written)
    if fault is not None:
        raise fault from None


def of_machine(error: Exception) -> bool:
    """Return True if Spark cancelled a job or lost an executor."""
    message = message_of(error).lower() if isinstance(error, SPARK_ERRORS) else ""
    return any(phrase in message for phrase in (*_BROKEN_OFF, *_LOST))


def may_pass(error: Exception) -> bool:
    """Return True if a retry of the table from its beginning may succeed."""
    return isinstance(error, SPARK_ERRORS) and not isinstance(error, AnalysisException)


def full_disk(error: Exception, writing: str) -> DiskFullError | None:
    """Return a DiskFullError for an error of a full disk, else None.

    Args:
        error: the error of Spark, Delta or delta-rs.
        writing: what was written, for the message.
    """
    if not isinstance(error, SPARK_ERRORS):
        return None
    texts = texts_of(error)
    if not any(phrase in text.lower() for text in texts for phrase in _DISK_FULL):
        return None
    place = next((found[0] for text in texts if (found := _PLACE.search(text)) is not None), None)
    where = writing if place is None else f"{writing}: the disk has {place.rstrip('.')}"
    return DiskFullError(f"a disk is full, found while writing {where}.", hint=_HINT)


@contextlib.contextmanager
def typed_storage_errors(writing: str) -> Iterator[None]:
    """Convert errors of a full disk and of an object store in the block; `writing`: what the block writes."""
    try:
        yield
    except SPARK_ERRORS as error:
        typed = full_disk(error, writing) or bucket_fault(error, writing)
        if typed is None:
            raise
        raise typed from None
