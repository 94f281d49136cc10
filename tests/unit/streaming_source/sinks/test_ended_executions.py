"""Jobs of ended executions are let go, those of living ones stay; a Spark that is made in another way is left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JError

from streaming_source.sinks.queries import forget_ended
from tests.kit.connect_session import ConnectSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Kept:
    """Stand in for the map of the scheduler: executions whose jobs are kept."""

    def __init__(self, numbers: set[int]) -> None:
        self.numbers = numbers

    def keySet(self) -> _Kept:  # noqa: N802  (the name in Java)
        return self

    def toArray(self) -> list[int]:  # noqa: N802
        return sorted(self.numbers)


def session(kept: _Kept, alive: set[int], **scheduler: Any) -> Any:
    names = {"activeQueryToJobs": lambda: kept, "cleanupQueryJobs": kept.numbers.discard, **scheduler}
    context = SimpleNamespace(dagScheduler=lambda: SimpleNamespace(**names))
    executions = SimpleNamespace(getQueryExecution=lambda number: object() if number in alive else None)
    package = SimpleNamespace(execution=SimpleNamespace(SQLExecution=executions))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=SimpleNamespace(spark=SimpleNamespace(sql=package))))
    return SimpleNamespace(_jvm=jvm, sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context)))


def test_what_has_ended_is_let_go_and_what_goes_on_is_kept() -> None:
    kept = _Kept({3, 5, 8})
    assert forget_ended(session(kept, alive={5})) == 2
    assert kept.numbers == {5}
    assert forget_ended(session(kept, alive={5})) == 0


@pytest.mark.parametrize("error", [Py4JError("there is no such method"), TypeError("'JavaPackage' is not callable")])
def test_a_spark_that_keeps_no_such_list_is_left_alone(error: Exception) -> None:
    def absent() -> None:
        raise error

    kept = _Kept({3})
    assert forget_ended(session(kept, alive=set(), activeQueryToJobs=absent)) == 0
    assert kept.numbers == {3}


def test_the_server_of_spark_connect_is_left_alone() -> None:
    assert forget_ended(cast("SparkSession", ConnectSession())) == 0
