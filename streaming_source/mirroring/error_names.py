"""The name of Spark's error, for tables whose values must not be shown: its text may have them.

In: an error of Spark. Out: a sentence with the error's condition, as Spark's documentation lists it, or with the last
words of ours, where an expression of ours raised it: these name columns and transactions, never values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_OURS: Final = "USER_RAISED_EXCEPTION"
"""Spark's condition for what `raise_error` raises."""


def error_name(error: PySparkException) -> str:
    """Return what went wrong, without a value of any row."""
    condition = error.getCondition() or type(error).__name__
    if condition.startswith(_OURS):
        told = error.getMessageParameters() or {}
        return str(told.get("errorMessage", condition))
    return f"Spark refuses a row or a batch: {condition}. Its text is not shown, as it may have values that are hidden."
