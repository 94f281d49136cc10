"""Construction of a query's `ChangePlanner` from its options and its plan, in the process that plans the query.

The planner connects at its first call, not earlier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.native.compile import compile_ahead
from streaming_source.attached.folder import attached_directory
from streaming_source.driver.deployment import spark_setup
from streaming_source.planning.admission import Admission, OrderLimit, batch_limits
from streaming_source.planning.definitions.remembered_selection import RememberedSelection, selection_of
from streaming_source.planning.definitions.statement_dml import StatementBorders, StatementDml
from streaming_source.planning.definitions.table_history import open_history
from streaming_source.planning.planner import ChangePlanner
from streaming_source.planning.tables.open_reading import table_rows
from streaming_source.ranges.cutting import PartitionSize, RangeCutter

if TYPE_CHECKING:
    from streaming_source.options.source_options import SourceOptions
    from streaming_source.ranges.places import Feed
    from streaming_source.rows.read_plan import ReadPlan

_KERNELS: Final = (
    "replica.rows.decode.kernels.kernel_images",
    "replica.rows.types.kernels.kernel_charsets",
    "streaming_source.rows.kernel_group_columns",
    "streaming_source.rows.kernel_row_texts",
)
"""Kernels that tasks call and this process does not import. If the cache is empty, this process compiles them before
the first task.
"""


def open_planner(options: SourceOptions, plan: ReadPlan, *, borders: bool = False) -> ChangePlanner:
    """Make the planner of a query in this process. The planner connects at its first call.

    Args:
        options: the options of the query.
        plan: the plan for reading its rows.
        borders: whether batches end before statements on the query's tables.
    """
    compile_ahead(f"replica.rows.decode.kernels.kernel_{'variant' if plan.shape == 'variant' else 'typed'}", *_KERNELS)
    directory = attached_directory(options)
    if directory is None:
        from streaming_source.planning.feed import ReplicaFeed

        return planner_over(ReplicaFeed(options), options, plan, borders=borders)
    from streaming_source.attached.feed import AttachedFeed

    return planner_over(AttachedFeed(options, directory), options, plan, borders=borders)


def planner_over(feed: Feed, options: SourceOptions, plan: ReadPlan, *, borders: bool = False) -> ChangePlanner:
    """Make the planner over an existing feed. If the options name a server, the planner can read snapshot rows, too."""
    tables = plan.tables
    cutter = open_cutter(options, plan)
    limits = batch_limits(options, inline=cutter.inline)
    admission = Admission(tables, limits, cutter)
    rows = None if options.replica is None else table_rows(feed, options, plan, limits)
    shared = Admission(tables, limits.shared(), cutter)
    selection = RememberedSelection(selection_of(plan), tables, reads=options.initial)
    statements = StatementDml(tables, options.on_statement_dml)
    order = OrderLimit(strict=options.gtid_strict_mode)
    history = open_history(options, plan)
    return ChangePlanner(
        feed,
        cutter,
        admission,
        history,
        selection,
        statements,
        order,
        borders=StatementBorders(tables) if borders else None,
        rows=rows,
        shared=shared,
    )


def open_cutter(options: SourceOptions, plan: ReadPlan) -> RangeCutter:
    """Make the cutter of a query's ranges, for the Spark application of this process."""
    spark = spark_setup()
    inline = options.transport == "inline" or (options.transport == "auto" and not spark.tasks_are_local)
    skip_unprepared = options.skip_unprepared_xa or not options.fail_on_data_loss
    size = PartitionSize(spark.cores, options.min_partitions)
    return RangeCutter(plan.tables, skip_unprepared=skip_unprepared, inline=inline, size=size)
