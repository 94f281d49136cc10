"""The tables of which a batch has rows with another key than the one that a part of the table was delivered by.

In: the partitions of a batch's changes, as its tasks get them. Out: the names of such tables. A task that met one would
have to end the query, each time again: the planner looks before it gives the tasks out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.rows.decode.unfit_keys import unfit_keys
from streaming_source.rows.reader import tables_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.schema.known_tables import TableName
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan


def tables_with_other_keys(partitions: Iterable[ChangePartition], plan: ReadPlan) -> set[TableName]:
    """Return the tables whose rows in these partitions have another key than what is delivered of them."""
    found: set[TableName] = set()
    for partition in partitions:
        for part in partition.ranges:
            if part.delivered is not None:
                tables = tables_in(part.catalog, plan).tables
                carried = part.carried_groups()
                found |= unfit_keys(
                    part.data(), tables, part.delivered, checksum=part.checksum, carried=carried, ends=part.ends
                )
    return found
