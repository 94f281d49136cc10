"""The task of a batch read over files: from stretches of one binlog file to RecordBatches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from streaming_source.rows.record_batches import RecordBatches, decoder_of, exempt_imports_from_collection, noted

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from replica.rows.scan.xa import XaGroup
    from streaming_source.files.partition import FilePartition
    from streaming_source.rows.read_plan import ReadPlan


def read_file_changes(partition: FilePartition, plan: ReadPlan) -> Iterator[pa.RecordBatch]:
    """Yield the row changes of one partition of a batch read over files. It raises the errors of `read_changes`."""
    without_rows: list[XaGroup] = []  # XA COMMITs without selected rows; the planner has examined them
    with noted(f"while reading {partition!r}"):
        made = RecordBatches(plan)
        for piece in partition.pieces():
            facts = made.facts(partition.file, piece.data)
            decoder = decoder_of(replace(plan, tables=replace(plan.tables, catalog=piece.catalog)))
            with noted(f"offsets count from byte {piece.offset} of {partition.access.path}"):
                choice = made.choice(piece.data, checksum=piece.checksum, carried=piece.carried)
                decoded = decoder.decode(
                    piece.data,
                    checksum=piece.checksum,
                    carried=piece.carried,
                    unprepared=without_rows,
                    only=choice.of_groups,
                )
                yield from made.batches(decoded, facts, choice)
        exempt_imports_from_collection()
