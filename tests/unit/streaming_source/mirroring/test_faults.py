"""Faults of tables, of the machine, and of a disk that may be either."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException, PySparkException

from replica.errors import SchemaError
from streaming_source.mirroring.faults import fault_of_all, may_pass, told_by

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
    assert told_by(own) == str(own)
