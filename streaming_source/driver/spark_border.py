"""The border to Spark: it prints class, text and remedy of this project's errors first.

Spark's Python processes send an exception as its traceback, whose last line is the message, 14 to 60 lines down. A
variable in such a process removes the traceback. Spark's own setting, spark.sql.execution.pyspark.udf.hideTraceback,
sets it for some of the processes and for all exceptions. `spark_border` sets it right before one of this project's
errors leaves, and the process ends with that error. Other exceptions are bugs and keep their traceback. The traceback
of this project's errors is logged at level DEBUG.
"""

from __future__ import annotations

import contextlib
import logging
import os
from typing import TYPE_CHECKING

from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Iterator

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"
RUNTIME = "SPARK_PYTHON_RUNTIME"
"""Variable by which a Python process that Spark started differs from a driver script. Other processes of a script would
inherit what it sets.
"""
logger = logging.getLogger("streaming_source")


@contextlib.contextmanager
def spark_border() -> Iterator[None]:
    """Shorten this project's errors, as a decorator of a method that Spark calls, or inside a generator."""
    try:
        yield
    except ReplicaError as error:
        raise _plain(error) from None
    except (ImportError, AttributeError) as error:
        from replica.installation import installation_error

        explained = installation_error(error)
        if explained is None:
            raise
        raise _plain(explained, error) from None


def _plain(error: ReplicaError, cause: BaseException | None = None) -> ReplicaError:
    logger.debug("reporting %s to Spark", type(error).__name__, exc_info=cause or error)
    if os.environ.get(RUNTIME) == "PYTHON_WORKER":
        os.environ[HIDE_TRACEBACK] = "1"
    return error
