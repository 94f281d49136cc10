"""The tables whose rows in a batch have another key than the one by which a part of the table was delivered.

`tables_with_other_keys` takes the partitions of a batch's changes as tasks get them. A task that met such a table would
end the query, at each retry again, so the planner checks before it passes the tasks on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.rows.decode.keys.unfit_keys import unfit_keys
from streaming_source.rows.reader import tables_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.schema.known_tables import TableName
    from streaming_source.rows.partition import ChangePartition
    from streaming_source.rows.read_plan import ReadPlan


def tables_with_other_keys(partitions: Iterable[ChangePartition], plan: ReadPlan) -> set[TableName]:
    """Return the tables whose rows in these partitions have another key than their delivered rows."""
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
