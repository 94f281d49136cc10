"""`pushFilters` of a batch reader: Spark hands over the conditions of a query, and gets back those that remain its own.

Spark pushes conditions only with spark.sql.python.filterPushdown.enabled=true, and without that setting refuses every
reader that overrides the method. Ours are right with and without it, so they do not override it: what is called here
says of itself that it is Spark's own method. A reader is a `FilteredReader` with `pushFilters = PushFilters()`.

Spark (4.2.1) keeps what a reader plans with the loaded DataFrame, conditions included, and gives it to other queries
over the same DataFrame, and to the other sides of a UNION: they lack rows then. So nothing is taken over unless the
option pushFilters says that the DataFrame is used once.
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
    """A reader with a plan, which takes a filter: from then on it plans and reads only what the filter leaves."""

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
