"""`pushFilters` of a batch reader: Spark passes the conditions of a query, and gets back those that it has to apply.

Spark pushes conditions only with spark.sql.python.filterPushdown.enabled=true. Without that setting it refuses every
reader that overrides the method. These readers are correct in both cases, so they must not appear to override it: the
callable here presents itself as Spark's own method. A reader is a `FilteredReader` with `pushFilters = PushFilters()`.

Spark (4.2.1) keeps the plan of a reader, with its conditions, in the loaded DataFrame. Other queries over that
DataFrame, and the other sides of a UNION, get the same plan and would lack rows. So a reader accepts no condition
unless the option pushFilters says that the DataFrame is used once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceReader

from streaming_source.selection.pushed_filters import push_filters

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.datasource import Filter

    from streaming_source.rows.read_plan import ReadPlan
    from streaming_source.selection.pushed_filters import ChangeFilter


class FilteredReader(Protocol):
    """A reader with a plan that accepts a filter, and then plans and reads only rows that pass it."""

    @property
    def plan(self) -> ReadPlan: ...

    def take_filter(self, pushed: ChangeFilter) -> None: ...


class _Pushing:
    """The bound method of one reader."""

    def __init__(self, reader: FilteredReader) -> None:
        self._reader = reader
        self.__func__ = DataSourceReader.pushFilters  # Spark looks here to see whether the method is overridden

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        plan = self._reader.plan
        if not plan.tables.push_filters:
            return filters
        pushed, left = push_filters(filters, flat=plan.shape == "flat", ddl=plan.tables.include_ddl)
        if pushed is not None:
            self._reader.take_filter(pushed)
        return left


class PushFilters:
    """The attribute `pushFilters` of a reader's class."""

    def __get__(self, reader: Any, owner: type | None = None) -> _Pushing:
        return _Pushing(reader)
