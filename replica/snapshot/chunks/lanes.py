"""Cut the keys of a large table into lanes, so that several connections read it side by side.

In: the first chunk of a table whose key is one integer. Out: kept keys at which lanes end, evenly spaced between the
chunk's last key and the table's largest. They only share the work: a lane is read in chunks until its end, so keys that
are not spread evenly cost time and no memory, and rows are delivered in key order all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.snapshot.check.catalog import count_table_rows
from replica.snapshot.rows.chunk import quoted, quoted_name
from replica.snapshot.rows.kept_key import kept_integer, kept_integers

if TYPE_CHECKING:
    from replica.snapshot.connection.asking import Asked
    from replica.snapshot.rows.chunk import TableChunk

LANE_CHUNKS: Final = 4
"""A lane has so many chunks, as far as can be told: what is read ahead of the first one has to wait for it."""
MOST_LANES: Final = 4096
"""A lane takes less than a KB of memory."""

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")


def lane_borders(connection: Asked, chunk: TableChunk, chunk_rows: int) -> list[bytes]:
    """Return the kept keys behind which the second lane begins and all others; empty for a table that needs none."""
    schema, key = chunk.table.schema, chunk.table.key
    if chunk.end is None or len(key.columns) != 1:
        return []
    column = schema.columns[key.columns[0]]
    if column.data_type not in _INTEGERS:
        return []
    name = schema.database, schema.table
    count = min(MOST_LANES, count_table_rows(connection, name) // (LANE_CHUNKS * chunk_rows))
    if count < 2:
        return []
    largest = connection.rows(f"SELECT MAX({quoted(column.name)}) FROM {quoted_name(name)}")[0][0]  # noqa: S608  (quoted)
    last = kept_integer(schema, key, chunk.end)
    reach = int(largest or 0) - last
    values = sorted({last + reach * number // count for number in range(1, count)} - {last}) if reach > 0 else []
    return kept_integers(schema, key, values)
