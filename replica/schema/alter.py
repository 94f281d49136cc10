"""The actions of ALTER TABLE, as text behind the table's name -> `Alteration`.

What an action does to the columns, their character sets and defaults, the keys and the versioning of a table is read;
actions that change none of these are stepped over. An action that is not known is a SchemaError: it might change them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import SchemaError
from replica.schema.alteration import Alteration
from replica.schema.columns import accept_charset, read_column, read_key, skip_default, starts_key
from replica.schema.create import read_items, read_option
from replica.schema.definition import PRIMARY, period_key

if TYPE_CHECKING:
    from replica.schema.cursor import Tokens
    from replica.schema.session import StatementContext

_WITHOUT_EFFECT = (
    ("DISABLE", "KEYS"), ("ENABLE", "KEYS"), ("FORCE",), ("ORDER", "BY"), ("ALGORITHM",), ("LOCK",),
    ("DROP", "FOREIGN"),
    ("DROP", "PARTITION"), ("ADD", "PARTITION"), ("COALESCE", "PARTITION"), ("REORGANIZE", "PARTITION"),
    ("ANALYZE", "PARTITION"), ("CHECK", "PARTITION"), ("OPTIMIZE", "PARTITION"), ("REBUILD", "PARTITION"),
    ("REPAIR", "PARTITION"), ("TRUNCATE", "PARTITION"), ("EXCHANGE", "PARTITION"), ("DISCARD",), ("IMPORT",),
    ("PARTITION", "BY"), ("REMOVE", "PARTITIONING"), ("WAIT",), ("NOWAIT",),
    ("RENAME", "KEY"), ("RENAME", "INDEX"),
)  # fmt: skip


def read_alteration(tokens: Tokens, session: StatementContext) -> Alteration:
    """Read the actions of ALTER TABLE, from behind the table's name on."""
    found = Alteration()
    while not tokens.at_end:
        if not _read_column_action(tokens, found, session):
            _read_table_action(tokens, found, session.database)
        tokens.accept(",")
    return found


def _read_column_action(tokens: Tokens, found: Alteration, session: StatementContext) -> bool:
    if any(tokens.sees(*words) for words in _WITHOUT_EFFECT):
        # All but PARTITION BY, which ends the statement, stops at a comma.
        last = tokens.sees("PARTITION", "BY") or tokens.sees("ORDER", "BY")
        tokens.skip_item()
        while last and not tokens.at_end:
            tokens.take()
            tokens.skip_item()
    elif tokens.accept("ADD", "SYSTEM", "VERSIONING"):
        found.options.versioned = True
    elif tokens.accept("ADD"):
        _read_add(tokens, found, session)
    elif verb := tokens.accept_any("CHANGE", "MODIFY"):
        tokens.accept("COLUMN")
        optional = tokens.accept("IF", "EXISTS")
        old = tokens.name() if verb == "CHANGE" else None
        item = read_column(tokens, session)
        key = (old or item.column.name).casefold()
        found.changed[key] = item
        found.if_exists |= {key} if optional else set()
        found.added += [(key, item)] if item.position is not None else []
    elif tokens.accept("DROP"):
        _read_drop(tokens, found)
    elif tokens.accept("ALTER"):
        _read_default(tokens, found)
    elif tokens.accept("RENAME", "COLUMN"):
        optional = tokens.accept("IF", "EXISTS")
        old = tokens.name().casefold()
        tokens.expect("TO")
        found.renamed[old] = tokens.name()
        found.if_exists |= {old} if optional else set()
    else:
        return False
    return True


def _read_add(tokens: Tokens, found: Alteration, session: StatementContext) -> None:
    if starts_key(tokens):
        key = read_key(tokens)
        found.keys += [key] if key else []
        return
    tokens.accept("COLUMN")
    optional = tokens.accept("IF", "NOT", "EXISTS")
    if tokens.sees("("):
        items, keys = read_items(tokens, session)
        found.keys += keys
    else:
        items = [read_column(tokens, session)]
    found.added += [(None, item) for item in items]
    found.if_not_exists |= {item.column.name.casefold() for item in items if optional}


def _read_drop(tokens: Tokens, found: Alteration) -> None:
    if tokens.accept("SYSTEM", "VERSIONING"):
        found.unversioned = True
    elif tokens.accept("PRIMARY", "KEY"):
        found.dropped_keys.add(PRIMARY)
    elif tokens.accept("PERIOD", "FOR"):
        tokens.accept("IF", "EXISTS")
        found.dropped_keys.add(period_key(tokens.name()))
    elif tokens.accept_any("KEY", "INDEX", "CONSTRAINT"):
        tokens.accept("IF", "EXISTS")
        found.dropped_keys.add(tokens.name())
    else:
        tokens.accept("COLUMN")
        optional = tokens.accept("IF", "EXISTS")
        found.dropped[tokens.name().casefold()] = optional
        tokens.accept_any("RESTRICT", "CASCADE")


def _read_default(tokens: Tokens, found: Alteration) -> None:
    """Read ALTER COLUMN … SET DEFAULT and DROP DEFAULT; step over what is said of an index or a check."""
    tokens.accept("COLUMN")
    tokens.accept("IF", "EXISTS")
    name = tokens.name().casefold()
    if tokens.accept("SET", "DEFAULT"):
        with tokens.keeping() as taken:
            skip_default(tokens)
        found.defaults[name] = tuple(taken)
    elif tokens.accept("DROP", "DEFAULT"):
        found.defaults[name] = None
    tokens.skip_item()


def _read_table_action(tokens: Tokens, found: Alteration, database: str) -> None:
    if tokens.accept("RENAME"):
        tokens.accept_any("TO", "AS", "=")
        found.rename = tokens.table_name(database)
    elif tokens.accept("CONVERT", "PARTITION"):
        tokens.name()
        tokens.expect("TO", "TABLE")
        found.to_table = tokens.table_name(database)
        tokens.skip_item()
    elif tokens.accept("CONVERT", "TABLE"):
        found.from_table = tokens.table_name(database)
        tokens.skip_item()
    elif tokens.accept("CONVERT", "TO"):
        charset, collation = accept_charset(tokens), None
        if tokens.accept("COLLATE"):
            collation = tokens.take().text.lower()
        found.convert = (charset, collation)
    else:
        read_option(tokens, found.options)
        if found.options.select:
            raise SchemaError("An action of ALTER TABLE is not known.")
