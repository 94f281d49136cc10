"""Faults of tables, of the machine, and of a disk that may be either.

A full disk, as Spark, Delta and Java tell of one.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException

from replica.errors import ConfigError, DiskFullError, SchemaError, StorageError
from streaming_source.mirroring.apply.faults import (
    fault_of_all,
    full_disk,
    may_pass,
    typed_storage_errors,
)
from streaming_source.sinks.queries import message_of
from streaming_source.sinks.storage_faults import bucket_fault

DISK = PySparkException("java.io.IOException: No space left on device")
TABLE = AnalysisException("[DELTA_MERGE_UNRESOLVED_EXPRESSION] no such column")


@pytest.mark.parametrize("words", ["Job 7 cancelled", "ExecutorLostFailure (executor 3 exited)", "Connection refused"])
def test_what_broke_off_or_lost_a_machine_ends_the_query(words: str) -> None:
    lost = PySparkException(f"Job aborted: {words}")
    assert fault_of_all([TABLE, lost], written=9) is lost


@pytest.mark.parametrize("name", ["RelayError", "DataLossError"])
def test_rows_that_cannot_be_read_end_the_query(name: str) -> None:
    unread = PySparkException(f"Job aborted: replica.errors.{name}: 7.relay is no longer there")
    assert fault_of_all([TABLE, unread], written=9) is unread


def test_a_full_disk_is_that_of_one_target_where_others_were_written() -> None:
    assert fault_of_all([DISK], written=1) is None
    assert fault_of_all([DISK], written=0) is DISK


def test_a_tables_own_fault_does_not_pass_by_itself() -> None:
    own = SchemaError("connection refused is only in its text")
    assert fault_of_all([TABLE, own], written=0) is None
    assert [may_pass(error) for error in (TABLE, own, DISK)] == [False, False, True]
    assert message_of(own) == str(own)


class JavaError:
    """An exception of Java as py4j shows it, with its cause below it."""

    def __init__(self, text: str, cause: JavaError | None = None) -> None:
        self.text, self.cause = text, cause

    def toString(self) -> str:  # noqa: N802  (as Java spells it)
        return self.text

    def getCause(self) -> JavaError | None:  # noqa: N802
        return self.cause


def written(*texts: str) -> PySparkException:
    """Return an error of Spark's with these texts, the last one the cause of all."""
    cause = None
    for text in reversed(texts):
        cause = JavaError(text, cause)
    error: Any = PySparkException(texts[0])
    error._origin = cause
    return error


FAILED = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/control."
FULL = "java.io.IOException: No space left on device"


@pytest.mark.parametrize(
    ("error", "where"),
    [
        (written(FAILED, "org.apache.spark.SparkException: lost", FULL), "x: the disk has file:/lake/control."),
        (
            written("Job aborted", "java.io.IOException: s3a://lake/t: Disk quota exceeded"),
            "x: the disk has s3a://lake/t",
        ),
        (written("Job aborted", FULL), "writing x."),
    ],
)
def test_the_place_that_is_full_is_named(error: PySparkException, where: str) -> None:
    found = full_disk(error, "x")
    assert isinstance(found, DiskFullError)
    assert where in found.message
    with pytest.raises(DiskFullError, match="a disk is full"), typed_storage_errors("x"):
        raise error


@pytest.mark.parametrize("error", [written(FAILED, "lost"), AnalysisException(FAILED), ConfigError(FULL)])
def test_other_errors_stay_what_they_are(error: Exception) -> None:
    assert full_disk(error, "x") is None
    with pytest.raises(type(error)) as met, typed_storage_errors("x"):
        raise error
    assert met.value is error


def test_a_fault_of_a_bucket_ends_the_query_only_if_nothing_was_written() -> None:
    denied = PySparkException("s3a://lake/t: AccessDenied (Service: S3, Status Code: 403)")
    assert fault_of_all([denied], written=1) is None
    assert fault_of_all([denied], written=0) is denied
    found = bucket_fault(denied, "the target")
    assert found is not None
    assert found.message == "the bucket lake does not allow the request, found while using the target."
    assert "s3:PutObject" in found.hint
    with pytest.raises(StorageError, match="the bucket lake"), typed_storage_errors("x"):
        raise denied


def test_a_catalog_that_does_not_answer_ends_the_query() -> None:
    away = StorageError("the Iceberg catalog lake does not answer")
    assert fault_of_all([TABLE, away], written=9) is away


def test_errors_of_the_server_and_of_a_disk_are_no_faults_of_a_bucket() -> None:
    away = PySparkException("replica.errors.DisconnectedError: db1: Connection refused; target s3a://lake/t")
    assert bucket_fault(away, "delta.`s3a://lake/t`") is None
    assert bucket_fault(DISK, "delta.`s3a://lake/t`") is None
    assert bucket_fault(ConfigError("AccessDenied s3a://lake"), "x") is None
