"""Let Spark print class, sentence and remedy of our errors first, wherever it calls us.

Spark's Python processes send an exception as its whole traceback, whose last line is the message: 14 to 60 lines down.
A variable in such a process leaves the message alone; Spark's own setting spark.sql.execution.pyspark.udf.hideTraceback
makes it for some of the processes and all exceptions. It is set here right before one of our errors leaves us, and the
process ends with that error. Exceptions of other kinds are faults of ours and keep their traceback; ours is logged at
level DEBUG.
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
"""Tells a Python process that Spark started from a driver script, whose other processes would inherit what is set."""
logger = logging.getLogger("streaming_source")


@contextlib.contextmanager
def spark_border() -> Iterator[None]:
    """Turn our errors into short ones around what Spark calls, as a decorator or inside of a generator."""
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
    logger.debug("Spark is told of %s", type(error).__name__, exc_info=cause or error)
    if os.environ.get(RUNTIME) == "PYTHON_WORKER":
        os.environ[HIDE_TRACEBACK] = "1"
    return error
