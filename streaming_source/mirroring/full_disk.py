"""A full disk, told by what Spark says of it: which place is full, instead of a task that failed.

In: an error of Spark's. Out: a DiskFullError that names the file or folder that was not written, where Java's words
name one, and what to do; None where it is another error. Java's words stand in the causes of the error, below
those of Spark and Delta.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from replica.errors import DiskFullError

if TYPE_CHECKING:
    from collections.abc import Iterator

FULL: Final = ("no space left on device", "disk quota exceeded")
_CAUSES: Final = 12
"""The most causes that are looked at, one below the other."""
_PLACE: Final = re.compile(r"(?:[a-z][a-z0-9+]*:)?/[^\s:'\"`,)\]]+", re.IGNORECASE)
_HINT: Final = (
    "Make room there, and start the mirror again: the batch that failed comes again as a whole, and nothing is lost."
)


def texts_of(error: Exception) -> list[str]:
    """Return what an error says, and what each of its causes says, without stacks."""
    java: Any = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    texts = [] if isinstance(error, Py4JJavaError) else [str(error)]
    for _ in range(_CAUSES):
        if java is None:
            break
        texts.append(str(java.toString()))
        java = java.getCause()
    return texts


def full_disk(error: Exception, writing: str) -> DiskFullError | None:
    """Return the error to raise instead; `writing`: what was being written, for where no place is named."""
    if not isinstance(error, PySparkException | Py4JJavaError):
        return None
    texts = texts_of(error)
    if not any(words in text.lower() for text in texts for words in FULL):
        return None
    place = next((found[0] for text in texts if (found := _PLACE.search(text)) is not None), None)
    where = writing if place is None else f"{writing}: it has {place.rstrip('.')}"
    return DiskFullError(f"a disk is full, met while writing {where}.", hint=_HINT)


@contextlib.contextmanager
def full_disk_told(writing: str) -> Iterator[None]:
    """Raise a DiskFullError for an error that comes of a full disk."""
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        full = full_disk(error, writing)
        if full is None:
            raise
        raise full from None
