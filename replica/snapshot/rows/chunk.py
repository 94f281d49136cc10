"""A chunk of a table, the SELECT that reads it, and how many rows the next one has.

In: the definition of a table, its key, the key up to which it was read. Out: SQL in key order, with conditions that the
server reads as one range of the index, a composite key expanded: (a > x) OR (a = x AND b > y). Compared as rows,
(a, b) > (x, y) is a scan of the whole table (measured on 10.5 to 11.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from replica.snapshot.frontier import NOTHING
from replica.snapshot.pace import CHUNK_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.location import RelayLocation
    from replica.schema.known_tables import TableName
    from replica.schema.table import TableSchema
    from replica.snapshot.rows.row_block import TableKey
    from replica.snapshot.spool.spool import StoredBlock

FIRST_ROWS: Final = 2_000
"""The rows of a table's first chunk: how wide they are, and how fast they come, is not known before."""
GROWTH: Final = 8
"""How many times larger than the last one a chunk may be: a table's rows are not alike."""


@dataclass(frozen=True, slots=True)
class ReadTable:
    """A table as a chunk was read: the columns that are read of it, and its key. `locks`: its engine keeps no versions
    of rows, and lets no one write while a statement reads. `defined`: the table with all its columns, None: the same.
    """

    schema: TableSchema
    key: TableKey
    locks: bool = False
    defined: TableSchema | None = None

    @property
    def whole(self) -> TableSchema:
        """The table with all its columns, as row images are told apart by."""
        return self.defined or self.schema

    @property
    def left_out(self) -> tuple[int, ...]:
        """The numbers of the columns that are not read."""
        names = {column.name for column in self.schema.columns}
        return tuple(number for number, column in enumerate(self.whole.columns) if column.name not in names)


@dataclass(frozen=True, slots=True)
class TableChunk:
    """Rows of a table whose keys lie behind `begin` and up to `end` (kept keys; None: no more rows follow).

    `lower`: everything up to this place of the relay log is surely in them, and was done before the definition was
    read. `upper`: nothing behind this position is, and the definition held there. `shown`: an earlier one behind which
    nothing is, where it counts; None: the same.
    """

    table: ReadTable
    begin: bytes
    end: bytes | None
    lower: RelayLocation
    upper: GtidPosition
    rows: int
    size: int
    stored: tuple[StoredBlock, ...]
    shown: GtidPosition | None = None

    def drop(self) -> None:
        """Let its rows go; this may be called twice."""
        for block in self.stored:
            block.drop()


def quoted(name: str) -> str:
    """Return a name as SQL has it between backticks."""
    return f"`{name.replace('`', '``')}`"


def quoted_name(table: TableName) -> str:
    """Return a table's name as SQL has it."""
    return f"{quoted(table[0])}.{quoted(table[1])}"


def behind(columns: Sequence[str], literals: Sequence[str]) -> str:
    """Return the condition on rows whose key is above the one of `literals`."""
    return _expanded(columns, literals, ">", ">")


def up_to(columns: Sequence[str], literals: Sequence[str]) -> str:
    """Return the condition on rows whose key is at or below the one of `literals`."""
    return _expanded(columns, literals, "<", "<=")


def chunk_sql(
    table: ReadTable,
    columns: str,
    rows: int,
    *,
    begin: Sequence[str] = (),
    end: Sequence[str] = (),
) -> str:
    """Return the SELECT of the first `rows` rows with keys behind `begin`, and at most `end`; empty for no border."""
    schema, key = table.schema, table.key
    names = [quoted(schema.columns[index].name) for index in key.columns]
    conditions = [behind(names, begin)] if begin else []
    conditions += [up_to(names, end)] if end else []
    where = f" WHERE {' AND '.join(f'({condition})' for condition in conditions)}" if conditions else ""
    source = f"{quoted_name((schema.database, schema.table))} FORCE INDEX ({quoted(key.index)})"
    return f"SELECT {columns} FROM {source}{where} ORDER BY {', '.join(names)} LIMIT {rows}"  # noqa: S608  (quoted)


def whole_sql(table: ReadTable, columns: str) -> str:
    """Return the SELECT of all rows, in no order."""
    schema = table.schema
    return f"SELECT {columns} FROM {quoted_name((schema.database, schema.table))}"  # noqa: S608  (quoted)


def largest_sql(table: ReadTable, columns: str) -> str:
    """Return the SELECT of the row with the largest key."""
    schema, key = table.schema, table.key
    names = [quoted(schema.columns[index].name) for index in key.columns]
    source = f"{quoted_name((schema.database, schema.table))} FORCE INDEX ({quoted(key.index)})"
    order = ", ".join(f"{name} DESC" for name in names)
    return f"SELECT {columns} FROM {source} ORDER BY {order} LIMIT 1"  # noqa: S608  (quoted)


def next_rows(rows: int, read: int, size: int, seconds: float, *, most_rows: int, most_bytes: int) -> int:
    """Return how many rows to ask for after `read` of `rows` took `seconds` and have `size` bytes."""
    if not read:
        return rows
    by_time = read * CHUNK_S / max(seconds, 1e-3)
    by_size = read * most_bytes / max(size, 1)
    return max(1, min(most_rows, GROWTH * rows, int(by_time), int(by_size)))


def starts(kept: bytes) -> bool:
    """Tell whether a chunk behind this kept key is the first of its table."""
    return kept == NOTHING


def _expanded(columns: Sequence[str], literals: Sequence[str], strict: str, last: str) -> str:
    terms = []
    for count in range(len(columns)):
        equal = [f"{name} = {value}" for name, value in zip(columns[:count], literals, strict=False)]
        sign = last if count == len(columns) - 1 else strict
        terms.append(" AND ".join([*equal, f"{columns[count]} {sign} {literals[count]}"]))
    return terms[0] if len(terms) == 1 else " OR ".join(f"({term})" for term in terms)
