"""The indexes of tables, asked of information_schema: one query as text, its rows as `TableIndex`.

In: which tables. Out: the query with its arguments, and from its rows the indexes of each table; or both as steps.
`s.*` because 10.5 has no column IGNORED: it is the last one, where it is.
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
# The order of the columns, the same in 10.5 to 11.8.
_DATABASE, _TABLE, _NON_UNIQUE, _NAME, _COLUMN, _ORDER, _PREFIX, _TYPE, _IGNORED = 1, 2, 3, 5, 7, 8, 10, 13, 16


class IndexPart(NamedTuple):
    """A column of an index: its name, whether only its beginning counts, and whether it is sorted downwards."""

    column: str
    prefix: bool
    descending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIndex:
    """One index. `kind` is BTREE, HASH, RTREE, FULLTEXT; the optimizer takes no notice of one that is `ignored`."""

    name: str
    unique: bool
    kind: str
    ignored: bool
    parts: tuple[IndexPart, ...]


def indexes_query(selection: Sequence[Selection]) -> tuple[str, tuple[str, ...]]:
    """Return SQL and arguments (%s) that list the columns of all indexes of the selected tables."""
    terms = ["s.TABLE_SCHEMA = %s" + (" AND s.TABLE_NAME = %s" if table else "") for _, table in selection]
    condition = " OR ".join(f"({term})" for term in terms) or "FALSE"
    return _INDEXES.format(condition=condition), tuple(name for pair in selection for name in pair if name)


def read_indexes(rows: Iterable[Sequence[Any]]) -> dict[tuple[str, str], tuple[TableIndex, ...]]:
    """Return the indexes that the rows of the query tell, by (database, table)."""
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
    """Return the indexes of all tables of these databases, or of the one `table` of the one database, as steps."""
    selection = [(database, table) for database in databases]
    return read_indexes((yield Query(*indexes_query(selection), MAX_CATALOG_BYTES)) if databases else ())
