"""The columns of a table map that the server added by itself: the hashes of long keys, and the end of the row period.

In: a `TableMapEvent` and what the catalog says of each of its columns. Out: the numbers of hash columns, which no one
ever sees, and of the column by which history rows are told from current ones. The catalog's word counts where there is
one; from the stream alone the names decide, together with place and type: `DB_ROW_HASH_n` as last columns (the server's
make_unique_key_name keeps them free of the user's names), and before them `row_start` and `row_end`, both TIMESTAMP(6)
NOT NULL, as WITH SYSTEM VERSIONING adds them. A period with names of its own is known from the catalog only.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.protocol.constants import ColumnType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.rows.column_def import ColumnDef
    from replica.schema.table import ColumnSchema

HASH_NAME: Final = re.compile(r"DB_ROW_HASH_\d+")
PERIOD_DIGITS: Final = 6  # a period in whole seconds does not exist


class Hidden(NamedTuple):
    hashes: frozenset[int]
    row_end: int | None


def hidden_columns(columns: Sequence[ColumnDef], known: Sequence[ColumnSchema | None]) -> Hidden:
    """Find what the server added to a table's columns; `known[i]` is the catalog's word on `columns[i]`."""
    last = len(columns)
    while last and _is_hash(columns[last - 1], known[last - 1]):
        last -= 1
    return Hidden(frozenset(range(last, len(columns))), _row_end(columns, known, last))


def _is_hash(column: ColumnDef, known: ColumnSchema | None) -> bool:
    name = known.name if known is not None and known.hidden else column.name if known is None else None
    return column.type == ColumnType.LONGLONG and name is not None and HASH_NAME.fullmatch(name) is not None


def _row_end(columns: Sequence[ColumnDef], known: Sequence[ColumnSchema | None], last: int) -> int | None:
    for index, schema in enumerate(known):
        if schema is not None and schema.period == "end" and _can_be_period(columns[index]):
            return index
    if last < 2 or known[last - 1] is not None or known[last - 2] is not None:
        return None
    pair = columns[last - 2 : last]
    named = [column.name for column in pair] == ["row_start", "row_end"]
    return last - 1 if named and all(_can_be_period(c) and not c.nullable for c in pair) else None


def _can_be_period(column: ColumnDef) -> bool:
    return column.type == ColumnType.TIMESTAMP2 and column.fsp == PERIOD_DIGITS
