"""The work of a Spark task: from a range of a relay log to RecordBatches.

`read_changes` takes a partition and the `ReadPlan` of the pickled reader. It is stateless, and runs again at every
retry and action. The same partition always gives the same rows in the same order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.native.compiling.ahead import COMPILING
from streaming_source.rows.record_batches import RecordBatches, decoder_of, exempt_imports_from_collection, noted
from streaming_source.selection.pushed_filters import OPERATIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.decode.decode import Walked
    from replica.rows.scan.xa import XaGroup
    from streaming_source.rows.change_rows import RangeFacts
    from streaming_source.rows.partition import CatalogChanges, ChangePartition, ChangeRange
    from streaming_source.rows.range_choice import RangeChoice
    from streaming_source.rows.read_plan import ReadPlan

INTERPRETED_TASK_BYTES: Final = 256 << 10
"""Largest partition in bytes that interpreted kernels decode, instead of waiting for the compiler. That takes some
seconds at most. The limit is larger than batches are meanwhile, because one transaction is a batch, however large.
"""


class OpenRange(NamedTuple):
    """A range whose decoding has begun: its batches, and the choice of their rows."""

    decoded: Iterable[ChangeBatch]
    choice: RangeChoice
    made: RecordBatches
    facts: RangeFacts


def read_changes(partition: ChangePartition, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Yield the row changes of one partition of a stream.

    Raises:
        ReplicaError: any error of the decoder, with a note that names the partition.
    """
    interpret_little(partition)
    for part in partition.ranges:
        with noted(f"while reading {part.place}"):
            opened = open_range(part, plan)
            yield from opened.made.batches(opened.decoded, opened.facts, opened.choice)
    exempt_imports_from_collection()


def interpret_little(partition: ChangePartition) -> None:
    """Interpret the kernels for a small partition if they are not compiled yet."""
    COMPILING.interpret = partition.size <= INTERPRETED_TASK_BYTES


def open_range(part: ChangeRange, plan: ReadPlan, walked: Walked | None = None) -> OpenRange:
    """Begin to decode a range of a partition. `walked` gets all rows events of the range."""
    tables = tables_in(part.catalog, plan)
    if part.read is not None:
        tables = _reading(tables)
    made, data = RecordBatches(tables), part.data()
    facts = made.facts(part.file, data, part.read)
    lost: list[XaGroup] | None = [] if part.lenient else None
    carried = part.carried_groups()
    choice = made.choice(data, checksum=part.checksum, carried=carried, bounds=part.bounds, rows=part.rows)
    decoded: Iterable[ChangeBatch] = decoder_of(tables).decode(
        data,
        checksum=part.checksum,
        carried=carried,
        unprepared=lost,
        only=choice.groups,
        ends=part.ends,
        delivered=part.delivered,
        walked=walked,
    )
    if part.read is not None:
        from streaming_source.rows.read_rows import read_rows  # imports numpy, as the decoder does

        decoded = read_rows(decoded, part.read)
    return OpenRange(decoded, choice, made, facts)


def _reading(plan: ReadPlan) -> ReadPlan:
    """Return the plan for snapshot rows, which are delivered whatever kinds of changes are selected."""
    return replace(plan, tables=replace(plan.tables, operations=OPERATIONS, skip_unchanged=False, include_ddl=False))


def tables_in(changes: CatalogChanges, plan: ReadPlan) -> ReadPlan:
    """Return the plan with the definitions of tables in a range."""
    if not changes:
        return plan
    catalog = {**plan.tables.catalog, **dict(changes)}
    known = {name: table for name, table in catalog.items() if table is not None}
    return replace(plan, tables=replace(plan.tables, catalog=known))
