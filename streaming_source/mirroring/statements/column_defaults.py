"""Defaults of the columns of mirrored tables, from the catalog and from statements.

In: databases of the server; a statement on a table. Out: the text after DEFAULT, by column. Rows whose images leave a
column out have this value (`omitted_columns.py`). Generated columns have no entry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.handshake.registration import MAX_CATALOG_BYTES, Query
from replica.schema.text.sql_tokens import tokenize

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.handshake.registration import Steps
    from replica.schema.definition.definition import ColumnItem
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName
    from replica.schema.text.sql_tokens import Token

Defaults = dict[str, str | None]
"""Text after DEFAULT, by column; None for a column without a default."""
NULL: Final = "NULL"
_AUTO: Final = "AUTO_INCREMENT"
"""Entry of an AUTO_INCREMENT column, whose default is no constant."""
_LOST: Final = "?"
"""Character that the catalog shows for a character of more than three UTF-8 bytes. A default with it is unknown."""
_LISTED: Final = """\
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, IF(EXTRA LIKE '%%auto_increment%%', %s, COLUMN_DEFAULT)
  FROM information_schema.COLUMNS
 WHERE GENERATION_EXPRESSION IS NULL AND TABLE_SCHEMA IN ({databases})"""


def ask_defaults(databases: Sequence[str]) -> Steps[dict[TableName, Defaults]]:
    """Return the defaults of all tables in these databases."""
    found: dict[TableName, Defaults] = {}
    if databases:
        listed = _LISTED.format(databases=", ".join(["%s"] * len(databases)))
        for database, table, column, default in (yield Query(listed, (_AUTO, *databases), MAX_CATALOG_BYTES)):
            told = _LOST if default is not None and _LOST in default else default
            found.setdefault((str(database), str(table)), {})[str(column)] = told
    return found


def defaults_behind(effect: StatementEffect, before: Defaults) -> Defaults:
    """Return the defaults of a table after a statement that its definition follows."""
    change = effect.alteration
    if change is None:
        return before
    found: Defaults = {}
    for column, default in before.items():
        key = change.key(column)
        if key not in change.dropped and key not in change.changed:
            written = change.defaults.get(key)
            found[change.renamed.get(key, column)] = _written(written) if key in change.defaults else default
    for item in [*change.changed.values(), *(item for old, item in change.added if old is None)]:
        if not item.column.computed:
            found.setdefault(item.column.name, _declared(item))
    return found


def numbered(defaults: Mapping[str, str | None]) -> list[str]:
    """Return the AUTO_INCREMENT columns."""
    return [name for name, default in defaults.items() if default == _AUTO]


def _declared(item: ColumnItem) -> str | None:
    if item.numbered:
        return _AUTO
    if item.default is None and item.column.nullable and item.column.data_type == "timestamp":
        return NULL  # NULL is declared; without it the server may make it NOT NULL, with the statement's time
    return _written(item.default)


def _written(default: tuple[Token, ...] | None) -> str | None:
    """Return the tokens of a default as text that is parsed as the same tokens."""
    if default is None:
        return None
    return " ".join(_quoted(word.text) if word.kind in ("string", "double") else word.text for word in default)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def same_defaults(one: Mapping[str, str | None], other: Mapping[str, str | None]) -> bool:
    """Return True if two sets of defaults have the same tokens, however they are written."""
    return {name: _words(text) for name, text in one.items()} == {name: _words(text) for name, text in other.items()}


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.text for word in tokenize(text)]
