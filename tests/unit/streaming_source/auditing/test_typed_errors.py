"""Our errors in what Spark says of them."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from replica.errors import PositionPurgedError, SchemaError
from streaming_source.auditing.comparison import error_of_ours, typed_errors


def test_the_error_is_of_its_class_again() -> None:
    told = "[PYTHON_DATA_SOURCE_ERROR] Failed: replica.errors.PositionPurgedError: gone. Name another.\n SQLSTATE: 1"
    error = error_of_ours(RuntimeError(told))
    assert type(error) is PositionPurgedError
    assert str(error) == "gone. Name another."
    assert error_of_ours(RuntimeError("replica.errors.NoSuch: x")) is None
    assert error_of_ours(RuntimeError("replica.errors.annotations: x")) is None
    assert error_of_ours(RuntimeError("something else")) is None


def test_errors_of_others_stay_what_they_are() -> None:
    def fail(text: str) -> None:
        with typed_errors():
            raise AnalysisException(text)

    with pytest.raises(SchemaError, match="was altered"):
        fail("x replica.errors.SchemaError: was altered")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW"):
        fail("TABLE_OR_VIEW_NOT_FOUND")
