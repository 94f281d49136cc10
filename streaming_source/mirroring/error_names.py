"""The words for an error of Spark where a table is set aside: whether a row was the cause, and what may be shown of it.

In: an error of Spark. Out: a sentence. Of tables whose values must not be shown it has Spark's condition alone, as
Spark's documentation lists it, or the words of ours where an expression of ours raised it: these name columns and
transactions, never values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

_OURS: Final = "USER_RAISED_EXCEPTION"
"""Spark's condition for what `raise_error` raises."""
_OF_ROWS: Final = ("InvariantViolationException", "SparkRuntimeException", "SparkArithmeticException")
"""The ends of the names of Java's classes for what a row is the cause of; Delta writes it inside of other errors."""
_DEEPEST: Final = 10


def error_name(error: PySparkException) -> str:
    """Return what went wrong, without a value of any row."""
    condition = error.getCondition() or type(error).__name__
    if condition.startswith(_OURS):
        told = error.getMessageParameters() or {}
        return str(told.get("errorMessage", condition))
    return _hidden(condition)


def refused_row(error: Py4JJavaError, *, hides: bool) -> str | None:
    """Return what the target says of a row that it refuses; None for an error that no row is the cause of."""
    cause: Any = error.java_exception
    for _ in range(_DEEPEST):
        if cause is None:
            break
        if str(cause.getClass().getName()).endswith(_OF_ROWS):
            condition = str(cause.getCondition() or cause.getClass().getSimpleName())
            return _hidden(condition) if hides else str(cause.getMessage())
        cause = cause.getCause()
    return None


def _hidden(condition: str) -> str:
    return f"Spark refuses a row or a batch: {condition}. Its text is not shown, as it may have values that are hidden."
