"""Read the indexes of tables from information_schema.

`indexes_query` builds the SQL, `read_indexes` parses its rows, and `ask_indexes` does both as steps. The query selects
`s.*` because 10.5 has no column IGNORED. Other versions have it as the last column.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.handshake.registration import MAX_CATALOG_BYTES, Query

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replica.handshake.registration import Steps
    from replica.schema.catalog import Selection

_INDEXES: Final = """\
SELECT s.*
  FROM information_schema.STATISTICS s
 WHERE {condition}
 ORDER BY s.TABLE_SCHEMA, s.TABLE_NAME, s.INDEX_NAME, s.SEQ_IN_INDEX"""
# Column numbers in the result, the same in 10.5 to 11.8.
_DATABASE, _TABLE, _NON_UNIQUE, _NAME, _COLUMN, _ORDER, _PREFIX, _TYPE, _IGNORED = 1, 2, 3, 5, 7, 8, 10, 13, 16


class IndexPart(NamedTuple):
    """Column of an index. `prefix`: only the first bytes are indexed. `descending`: the sort order."""

    column: str
    prefix: bool
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIndex:
    """One index. `kind` is BTREE, HASH, RTREE or FULLTEXT; the optimizer does not use an `ignored` index."""

    name: str
    unique: bool
    kind: str
    ignored: bool
    parts: tuple[IndexPart, ...]


def indexes_query(selection: Sequence[Selection]) -> tuple[str, tuple[str, ...]]:
    """Return SQL and arguments (%s) that list the index columns of the selected tables."""
    terms = ["s.TABLE_SCHEMA = %s" + (" AND s.TABLE_NAME = %s" if table else "") for _, table in selection]
    condition = " OR ".join(f"({term})" for term in terms) or "FALSE"
    return _INDEXES.format(condition=condition), tuple(name for pair in selection for name in pair if name)


def read_indexes(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], tuple[TableIndex, ...]]:
    """Return the indexes in the rows of the query, by (database, table)."""
    found: dict[tuple[str, str], dict[str, TableIndex]] = {}
    for row in rows:
        indexes = found.setdefault((row[_DATABASE], row[_TABLE]), {})
        name = row[_NAME]
        part = IndexPart(row[_COLUMN], row[_PREFIX] is not None, row[_ORDER] == "D")
        before = indexes[name].parts if name in indexes else ()
        indexes[name] = TableIndex(
            name=name,
            unique=int(row[_NON_UNIQUE]) == 0,
            kind=row[_TYPE],
            ignored=len(row) > _IGNORED and row[_IGNORED] == "YES",
            parts=(*before, part),
        )
    return {table: tuple(indexes.values()) for table, indexes in found.items()}


def ask_indexes(
    databases: Sequence[str], table: str | None = None
) -> Steps[dict[tuple[str, str], tuple[TableIndex, ...]]]:
    """Ask for the indexes of all tables of these databases, or of one `table` in one database."""
    selection = [(database, table) for database in databases]
    return read_indexes((yield Query(*indexes_query(selection), MAX_CATALOG_BYTES)) if databases else ())
