"""Conversion of Spark's exceptions back into this project's errors.

The exception of a failed job has the class and text of the original error in its own text.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Final

from replica import errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_TOLD: Final = re.compile(r"replica\.errors\.(\w+): ([^\n]*)")


def error_of_ours(error: BaseException) -> errors.ReplicaError | None:
    """Return the error of this project that an exception of Spark wraps; None if it wraps none."""
    told = _TOLD.search(str(error))
    kind = getattr(errors, told[1], None) if told is not None else None
    if told is None or not isinstance(kind, type) or not issubclass(kind, errors.ReplicaError):
        return None
    return kind(told[2])


@contextlib.contextmanager
def typed_errors() -> Iterator[None]:
    """Raise the project's error in place of the Spark exception that wraps it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        ours = error_of_ours(error)
        if ours is None:
            raise
        raise ours from None
