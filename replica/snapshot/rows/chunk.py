"""Chunk of a table, the SELECT that reads it, and the size of the next chunk.

`chunk_sql` selects rows in key order after a kept key. It expands a composite key to `(a > x) OR (a = x AND b > y)`,
which the server reads as one index range. The row comparison `(a, b) > (x, y)` would scan the whole table (measured on
10.5 to 11.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.schema.text.naming import quoted, quoted_table
from replica.snapshot.frontier import NOTHING
from replica.snapshot.pace import CHUNK_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayLocation
    from replica.schema.table import TableSchema
    from replica.snapshot.rows.row_block import TableKey
    from replica.snapshot.spool.spool import StoredBlock

FIRST_ROWS: Final = 2_000
"""Rows of a table's first chunk, before the width and speed of its rows are known."""
GROWTH: Final = 8
"""Maximum growth factor from one chunk to the next, because rows of a table differ in width."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """Table as a chunk read it.

    Attributes:
        schema: Columns that are read.
        key: Key that orders the chunks.
        locks: The engine has no consistent snapshots; a reading statement locks out writers.
        defined: The table with all columns; None if `schema` has all of them.
    """

    schema: TableSchema
    key: TableKey
    locks: bool = False
    defined: TableSchema | None = None

    @property
    def full_schema(self) -> TableSchema:
        """Table with all columns, as row images have them."""
        return self.defined or self.schema

    @property
    def left_out(self) -> tuple[int, ...]:
        """Numbers of the columns that are not read."""
        names = {column.name for column in self.schema.columns}
        return tuple(number for number, column in enumerate(self.full_schema.columns) if column.name not in names)


@dataclass(frozen=True, slots=True)
class TableChunk:
    """Rows of a table with keys after `begin` and up to and including `end`.

    Attributes:
        begin: Kept key before the first row.
        end: Kept key of the last row; None if no row follows.
        low: Low watermark. The rows contain every change up to this location, and the definition was read after it.
        high: High watermark. The rows contain no later change, and the definition was valid there.
        shown: For a table without a key, an earlier position after which the rows contain no change; None if it equals
            `high`.
    """

    table: ReadTable
    begin: bytes
    end: bytes | None
    low: RelayLocation
    high: GtidPosition
    rows: int
    size: int
    stored: tuple[StoredBlock, ...]
    shown: GtidPosition | None = None

    def drop(self) -> None:
        """Release the rows; a second call has no effect."""
        for block in self.stored:
            block.drop()


def after_key(columns: Sequence[str], literals: Sequence[str]) -> str:
    """Return the condition for rows with keys above `literals`."""
    return _expanded(columns, literals, ">", ">")


def up_to(columns: Sequence[str], literals: Sequence[str]) -> str:
    """Return the condition for rows with keys at or below `literals`."""
    return _expanded(columns, literals, "<", "<=")


def chunk_sql(
    table: ReadTable,
    columns: str,
    rows: int,
    *,
    begin: Sequence[str] = (),
    end: Sequence[str] = (),
) -> str:
    """Return the SELECT of the next chunk of a table.

    Args:
        table: Table to read.
        columns: Select list (table_map.py).
        rows: Maximum number of rows.
        begin: Literals of the key after which the chunk begins; empty for no lower limit.
        end: Literals of the key up to and including which it may extend; empty for no upper limit.
    """
    schema, key = table.schema, table.key
    names = [quoted(schema.columns[index].name) for index in key.columns]
    conditions = [after_key(names, begin)] if begin else []
    conditions += [up_to(names, end)] if end else []
    where = f" WHERE {' AND '.join(f'({condition})' for condition in conditions)}" if conditions else ""
    source = f"{quoted_table((schema.database, schema.table))} FORCE INDEX ({quoted(key.index)})"
    return f"SELECT {columns} FROM {source}{where} ORDER BY {', '.join(names)} LIMIT {rows}"  # noqa: S608  (quoted)


def full_table_sql(table: ReadTable, columns: str) -> str:
    """Return the SELECT of all rows, in no order."""
    schema = table.schema
    return f"SELECT {columns} FROM {quoted_table((schema.database, schema.table))}"  # noqa: S608  (quoted)


def largest_sql(table: ReadTable, columns: str) -> str:
    """Return the SELECT of the row with the largest key."""
    schema, key = table.schema, table.key
    names = [quoted(schema.columns[index].name) for index in key.columns]
    source = f"{quoted_table((schema.database, schema.table))} FORCE INDEX ({quoted(key.index)})"
    order = ", ".join(f"{name} DESC" for name in names)
    return f"SELECT {columns} FROM {source} ORDER BY {order} LIMIT 1"  # noqa: S608  (quoted)


def next_rows(rows: int, read: int, size: int, seconds: float, *, most_rows: int, most_bytes: int) -> int:
    """Return the number of rows to request for the next chunk, from the size and time of the last one.

    Args:
        rows: Requested rows of the last chunk.
        read: Rows that the last chunk returned.
        size: Bytes of the returned rows.
        seconds: Time that the last chunk took, in seconds.
        most_rows: Maximum rows of a chunk.
        most_bytes: Maximum bytes of a chunk.
    """
    if not read:
        return rows
    by_time = read * CHUNK_S / max(seconds, 1e-3)
    by_size = read * most_bytes / max(size, 1)
    return max(1, min(most_rows, GROWTH * rows, int(by_time), int(by_size)))


def starts(kept: bytes) -> bool:
    """Return True if a chunk after this kept key is the first of its table."""
    return kept == NOTHING


def _expanded(columns: Sequence[str], literals: Sequence[str], strict: str, last: str) -> str:
    terms = []
    for count in range(len(columns)):
        equal = [f"{name} = {value}" for name, value in zip(columns[:count], literals, strict=False)]
        sign = last if count == len(columns) - 1 else strict
        terms.append(" AND ".join([*equal, f"{columns[count]} {sign} {literals[count]}"]))
    return terms[0] if len(terms) == 1 else " OR ".join(f"({term})" for term in terms)
