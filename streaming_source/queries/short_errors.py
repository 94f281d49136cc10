"""Errors of the JVM inside of foreachBatch, cut to what Spark can look through when the query is stopped.

`query.stop()` breaks off the job of the running batch, and the function given to foreachBatch fails with what Java says
of that, stack and all: 8 to 12 thousand characters. Spark (4.2) looks in that text for the name of an interruption with
a regular expression that takes 300 bytes of stack for each character behind "An error occurred while calling". From
1 200 to 3 500 characters on, by what of it the JVM has compiled, the thread of the query ends in a StackOverflowError.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""What Spark raises; the second is what it has no class of its own for, as errors of Delta."""
LONGEST_TEXT = 600
"""Half of what overflowed the stack of 1 MB that a thread of Java has, in the slowest of the JVM's ways to run."""


def told_by(error: Exception) -> str:
    """Return what an error says, without the stack of Java."""
    return str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)


def first_line(error: Exception) -> str:
    """Return the first line of that: what follows is the plan, or where in the text it went wrong."""
    return told_by(error).strip().splitlines()[0]


def without_plan(error: Exception) -> str:
    """Return what an error says up to Spark's plan."""
    return told_by(error).partition(";\n")[0].strip()


class ShortJavaError(Py4JJavaError):
    """The error of a Spark job in Java's first words, for those who catch that kind; `java_exception` has the rest."""

    def __str__(self) -> str:
        # The words that Spark looks for: without them it takes a query that was stopped for one that failed.
        text = f"py4j.protocol.Py4JJavaError: An error occurred while calling Spark: {self.java_exception.toString()}"
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} …"


@contextlib.contextmanager
def short_java_errors() -> Iterator[None]:
    """Raise errors of Spark's jobs as `ShortJavaError`; those with a class in pyspark.errors stay what they are."""
    try:
        yield
    except Py4JJavaError as error:
        raise ShortJavaError(error.errmsg, error.java_exception) from None
