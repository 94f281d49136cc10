"""The same work for several items at a time, in threads with the properties of the session's thread.

`side_by_side` returns the results in the order of the items. After an error it begins no further items, and raises the
error when the running ones are done.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def side_by_side(
    spark: SparkSession, work: Callable[[_Item], _Result], items: Iterable[_Item], *, at_once: int, name: str
) -> list[_Result]:
    """Return the results of `work` for each item.

    Jobs of the threads count as those of the caller's query, as far as the session has such properties.

    Args:
        spark: the session.
        work: the function to call.
        items: its arguments.
        at_once: most items at a time.
        name: prefix of the threads' names.
    """
    from pyspark import inheritable_thread_target
    from pyspark.sql import is_remote

    in_thread = work if is_remote() else inheritable_thread_target(spark)(work)
    with ThreadPoolExecutor(at_once, name) as pool:
        return list(pool.map(in_thread, items))
