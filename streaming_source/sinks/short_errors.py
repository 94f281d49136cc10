"""Errors of the JVM in foreachBatch, shortened to a length that Spark can search when the query is stopped.

`query.stop()` cancels the job of the running batch. The function of foreachBatch then fails with Java's text of that,
with its stack: 8 to 12 thousand characters. Spark (4.2) searches that text for the name of an interruption. Its regular
expression takes 300 bytes of stack for each character after "An error occurred while calling". From 1200 to 3500
characters on, depending on what the JVM has compiled, the thread of the query ends in a StackOverflowError.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Iterator

SPARK_ERRORS: Final = (PySparkException, Py4JJavaError)
"""Exceptions of Spark. The second is for errors without a class in pyspark.errors, such as those of Delta."""
LONGEST_TEXT = 600
"""Most characters of a text: half of those that overflowed the 1 MB stack of a Java thread in the slowest execution
mode of the JVM.
"""


def told_by(error: Exception) -> str:
    """Return the text of an error without Java's stack."""
    return str(error.java_exception) if isinstance(error, Py4JJavaError) else str(error)


def first_line(error: Exception) -> str:
    """Return the first line of that text. The rest is the plan, or the place of an error in SQL."""
    return told_by(error).strip().splitlines()[0]


def without_plan(error: Exception) -> str:
    """Return the text of an error up to Spark's plan."""
    return told_by(error).partition(";\n")[0].strip()


class ShortJavaError(Py4JJavaError):
    """The error of a Spark job with Java's first words, for callers that catch Py4JJavaError. `java_exception` has the
    rest.
    """

    def __str__(self) -> str:
        # Spark searches for these words. Without them it takes a stopped query for a failed one.
        text = f"py4j.protocol.Py4JJavaError: An error occurred while calling Spark: {self.java_exception.toString()}"
        return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} …"


@contextlib.contextmanager
def short_java_errors() -> Iterator[None]:
    """Raise errors of Spark's jobs as `ShortJavaError`. Errors with a class in pyspark.errors are not changed."""
    try:
        yield
    except Py4JJavaError as error:
        raise ShortJavaError(error.errmsg, error.java_exception) from None
