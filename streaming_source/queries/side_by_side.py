"""The same work for several items at a time, in threads that have the properties of the session's thread.

In: a function, items, how many at a time. Out: the results in the order of the items. After the first error no more of
them is begun, and it is raised when those that run are done.
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
    """Return what `work` returns of each item. `name`: what threads are called by.

    Jobs of the threads count as those of the caller's query, as far as the session has such properties.
    """
    from pyspark import inheritable_thread_target
    from pyspark.sql import is_remote

    in_thread = work if is_remote() else inheritable_thread_target(spark)(work)
    with ThreadPoolExecutor(at_once, name) as pool:
        return list(pool.map(in_thread, items))
