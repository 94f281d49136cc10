"""Parser of the actions of ALTER TABLE: from the text after the table's name to an `Alteration`.

The parser reads the effect of each action on columns, their character sets and defaults, keys and versioning. An action
without such an effect is skipped. The words of a skipped action are kept in `Alteration.unproven`, unless the action is
known to keep every stored value (`_HARMLESS`, `_OPTIONS`, `_ENGINES`). An unknown action is a SchemaError, because it
may change the definition.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.schema.definition.column import Column, converted, with_charset
from replica.schema.definition.columns import (
    Options,
    accept_charset,
    check_mode,
    read_column,
    read_default,
    read_items,
    read_key,
    read_option,
    starts_key,
)
from replica.schema.definition.definition import (
    PRIMARY,
    Table,
    column_keys,
    own_encoding,
    period_key,
    place,
    with_encoding,
    with_keys,
)
from replica.schema.text.naming import column_key
from replica.schema.text.sql_tokens import ANY_VERSION

if TYPE_CHECKING:
    from replica.schema.definition.definition import ColumnItem, Encoding, Key
    from replica.schema.definition.session import StatementContext
    from replica.schema.text.cursor import Tokens
    from replica.schema.text.sql_tokens import Token
# The order is the server's (mysql_prepare_alter_table). First, columns are dropped, changed and renamed in place. Then
# added and moved columns get their places, in the order of the statement. Character sets are converted last. A missing
# column, or an added one that exists, is a SchemaError: the table differed from the known definition.


@dataclass(slots=True, kw_only=True)
class Alteration:
    """Changes of one ALTER TABLE.

    Names in `changed`, `renamed`, `dropped` and `defaults` are comparison keys (`key`) of the old names.
    """

    server_version: int = ANY_VERSION  # of the server that compared the names
    added: list[tuple[str | None, ColumnItem]] = field(default_factory=list)  # (old name of a changed column, column)
    changed: dict[str, ColumnItem] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    dropped: dict[str, bool] = field(default_factory=dict)  # whether IF EXISTS was written
    if_exists: set[str] = field(default_factory=set)  # changed only if the column exists
    if_not_exists: set[str] = field(default_factory=set)  # added only if the column does not exist
    defaults: dict[str, tuple[Token, ...] | None] = field(default_factory=dict)  # SET DEFAULT; None: DROP DEFAULT
    keys: list[Key] = field(default_factory=list)
    dropped_keys: set[str] = field(default_factory=set)
    options: Options = field(default_factory=Options)
    convert: tuple[str | None, str | None] | None = None  # character set and collation as written
    unversioned: bool = False
    rename: tuple[str, str] | None = None
    to_table: tuple[str, str] | None = None  # CONVERT PARTITION … TO TABLE
    from_table: tuple[str, str] | None = None  # CONVERT TABLE … TO PARTITION
    unproven: list[str] = field(default_factory=list)  # actions that may change rows in addition to the definition

    def key(self, name: str) -> str:
        """Return the comparison key of a column's or index's name, by the rule of the statement's server."""
        return column_key(name, self.server_version)


def altered(table: Table, change: Alteration, default: Encoding) -> Table:
    """Return the table after the statement; `default` is the database's encoding."""
    encoding = change.options.encoding(default, table.encoding)
    if change.convert is not None:
        encoding = own_encoding(*change.convert, default) or default
    columns, names = _kept(table, change, encoding)
    columns = _placed(table, columns, change, encoding)
    if change.convert is not None:
        charset, collation = encoding
        if charset is None:
            raise SchemaError("The character set that the table is converted to is not known.")
        # A column that is declared in the same statement keeps its size, and CONVERT overrides its character set.
        declared_here = {change.key(item.column.name) for _, item in (*change.added, *change.changed.items())}
        columns = [
            (with_charset if change.key(column.name) in declared_here else converted)(column, charset, collation)
            for column in columns
        ]
    declared = [*change.changed.values(), *(item for old, item in change.added if old is None)]
    keys = [*_keys(table, change, names), *change.keys, *column_keys(declared)]
    # ADD COLUMN IF NOT EXISTS … PRIMARY KEY keeps an existing key.
    primary = next((key for key in keys if key.primary), None)
    keys = [key for key in keys if not key.primary or key is primary]
    versioned = (table.versioned or change.options.versioned) and not change.unversioned
    return with_keys(columns, keys, encoding, versioned=versioned, server_version=change.server_version)


def _kept(table: Table, change: Alteration, encoding: Encoding) -> tuple[list[Column], dict[str, str]]:
    """Return the remaining columns in their old order, and the new name of each by the key of its old name."""
    columns, names = [], {}
    for column in table.columns:
        old = change.key(column.name)
        if old in change.dropped:
            continue
        if old in change.changed:
            column = with_encoding(change.changed[old], encoding)  # noqa: PLW2901
        if old in change.renamed:
            column = replace(column, name=change.renamed[old])  # noqa: PLW2901
        columns.append(column)
        names[old] = column.name
    known = {change.key(column.name) for column in table.columns}
    missing = {*change.changed, *change.renamed, *(name for name, optional in change.dropped.items() if not optional)}
    missing -= known | change.if_exists
    if missing:
        raise SchemaError(f"The table has no column {', '.join(sorted(missing))}.")
    return columns, names


def _placed(table: Table, columns: list[Column], change: Alteration, encoding: Encoding) -> list[Column]:
    """Return the columns with added and moved ones at their places."""
    known = {change.key(column.name) for column in table.columns}
    for old, item in change.added:
        name = change.key(item.column.name)
        if old is None:
            if name in change.if_not_exists and name in known:
                continue
            known.add(name)
            column = with_encoding(item, encoding)
        elif old in known:
            column = columns.pop(place(columns, item.column.name, change.server_version))
        else:
            continue  # MODIFY COLUMN IF EXISTS
        if item.position is None:
            columns.append(column)
        else:
            columns.insert(place(columns, item.position, change.server_version) + 1 if item.position else 0, column)
    return columns


def _keys(table: Table, change: Alteration, names: dict[str, str]) -> list[Key]:
    """Return the remaining old keys, with the new names of their columns."""
    dropped = {change.key(name) for name in change.dropped_keys}
    kept = []
    for key in table.keys:
        parts = tuple((names[change.key(name)], prefix) for name, prefix in key.parts if change.key(name) in names)
        if parts and change.key(key.name) not in dropped:
            kept.append(replace(key, parts=parts))
    return kept


_ANY: Final = 1 << 30
_HARMLESS: Final = {
    ("DISABLE", "KEYS"): 2, ("ENABLE", "KEYS"): 2, ("FORCE",): 1, ("ORDER", "BY"): _ANY,
    ("ALGORITHM",): 3, ("LOCK",): 3, ("WAIT",): 2, ("NOWAIT",): 1,
    ("DROP", "FOREIGN"): 6, ("RENAME", "KEY"): 7, ("RENAME", "INDEX"): 7,
    ("ADD", "PARTITION"): _ANY, ("COALESCE", "PARTITION"): _ANY, ("REORGANIZE", "PARTITION"): _ANY,
    ("ANALYZE", "PARTITION"): _ANY, ("CHECK", "PARTITION"): _ANY, ("OPTIMIZE", "PARTITION"): _ANY,
    ("REBUILD", "PARTITION"): _ANY, ("PARTITION", "BY"): _ANY, ("REMOVE", "PARTITIONING"): 2,
}  # fmt: skip
"""Actions that keep the definition and every stored value, with the maximum number of words of each.

Repartitioning removes no row: the server reports an error for a row that fits no partition.
"""
_OF_ROWS: Final = (
    ("DROP", "PARTITION"), ("TRUNCATE", "PARTITION"), ("EXCHANGE", "PARTITION"), ("REPAIR", "PARTITION"),
    ("DISCARD",), ("IMPORT",),
)  # fmt: skip
"""Actions that keep the definition and may change the set of rows."""
_OPTIONS: Final = frozenset(
    (
        *("AUTO_INCREMENT", "AVG_ROW_LENGTH", "CHECKSUM", "TABLE_CHECKSUM", "COMMENT", "DELAY_KEY_WRITE"),
        *("ENCRYPTED", "ENCRYPTION_KEY_ID", "KEY_BLOCK_SIZE", "MAX_ROWS", "MIN_ROWS", "PACK_KEYS", "PAGE_CHECKSUM"),
        *("PAGE_COMPRESSED", "PAGE_COMPRESSION_LEVEL", "ROW_FORMAT", "STATS_AUTO_RECALC", "STATS_PERSISTENT"),
        *("STATS_SAMPLE_PAGES", "TRANSACTIONAL"),
    )
)
"""Table options that change no value."""
_ENGINES: Final = frozenset(("INNODB", "ARIA", "MYISAM"))
"""Engines that keep every value of a table. BLACKHOLE keeps no row, MERGE has rows of other tables, CSV has no NULL, …
"""
_OF_PARTITIONS: Final = frozenset(("ENGINE", "CONNECTION"))
"""Options of a partition that may change the place of its rows."""
_OF_DEFINITION: Final = ("CHARACTER", "CHAR", "CHARSET", "COLLATE", "WITH", "SELECT", "VALUES", "AS", "(")
"""First words of options that belong to the definition, and of text that is not an option."""

_SHOWN_TOKENS: Final = 6


def read_alteration(tokens: Tokens, session: StatementContext) -> Alteration:
    """Parse the actions of ALTER TABLE, from the token after the table's name."""
    found = Alteration(server_version=session.server.version)
    while not tokens.at_end:
        if not _read_column_action(tokens, found, session):
            _read_table_action(tokens, found, session.database)
        tokens.accept(",")
    return found


def _read_column_action(tokens: Tokens, found: Alteration, session: StatementContext) -> bool:
    if any(tokens.sees(*words) for words in (*_HARMLESS, *_OF_ROWS)):
        _skip_action(tokens, found)
    elif tokens.accept("ADD", "SYSTEM", "VERSIONING"):
        found.options.versioned = True
    elif tokens.accept("ADD"):
        _read_add(tokens, found, session)
    elif verb := tokens.accept_any("CHANGE", "MODIFY"):
        tokens.accept("COLUMN")
        optional = tokens.accept("IF", "EXISTS")
        old = tokens.name() if verb == "CHANGE" else None
        item = read_column(tokens, session)
        key = found.key(old or item.column.name)
        found.changed[key] = item
        found.if_exists |= {key} if optional else set()
        found.added += [(key, item)] if item.position is not None else []
    elif tokens.accept("DROP"):
        _read_drop(tokens, found)
    elif tokens.accept("ALTER"):
        _read_default(tokens, found, session)
    elif tokens.accept("RENAME", "COLUMN"):
        optional = tokens.accept("IF", "EXISTS")
        old = found.key(tokens.name())
        tokens.expect("TO")
        found.renamed[old] = tokens.name()
        found.if_exists |= {old} if optional else set()
    else:
        return False
    return True


def _skip_action(tokens: Tokens, found: Alteration) -> None:
    """Skip an action that keeps the definition. Record the action as unproven unless it keeps all rows."""
    action = next((action for action in _HARMLESS if tokens.sees(*action)), None)
    # PARTITION BY and ORDER BY extend to the end of the statement; other actions stop at a comma.
    last = tokens.sees("PARTITION", "BY") or tokens.sees("ORDER", "BY")
    with tokens.keeping() as taken:
        tokens.skip_item()
        while last and not tokens.at_end:
            tokens.take()
            tokens.skip_item()
    harmless = action is not None and len(taken) <= _HARMLESS[action]
    if not harmless or any(token.upper in _OF_PARTITIONS for token in taken):
        found.unproven.append(_shown(taken))


def _shown(tokens: list[Token]) -> str:
    return " ".join(token.text for token in tokens[:_SHOWN_TOKENS])


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
    found.if_not_exists |= {found.key(item.column.name) for item in items if optional}


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
        found.dropped[found.key(tokens.name())] = optional
        tokens.accept_any("RESTRICT", "CASCADE")


def _read_default(tokens: Tokens, found: Alteration, session: StatementContext) -> None:
    """Parse ALTER COLUMN … SET DEFAULT and DROP DEFAULT; skip ALTER INDEX … [NOT] IGNORED."""
    if tokens.accept_any("INDEX", "KEY", "CONSTRAINT"):
        tokens.skip_item()
        return
    tokens.accept("COLUMN")
    tokens.accept("IF", "EXISTS")
    name = found.key(tokens.name())
    if tokens.accept("SET", "DEFAULT"):
        check_mode(tokens, name)
        found.defaults[name] = read_default(tokens, session)
    elif tokens.accept("DROP", "DEFAULT"):
        found.defaults[name] = None
    with tokens.keeping() as taken:
        tokens.skip_item()
    found.unproven += [f"ALTER {name} {_shown(taken)}"] * bool(taken)


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
        _read_option(tokens, found)


def _read_option(tokens: Tokens, found: Alteration) -> None:
    """Parse a table option. Record it as unproven if it may change rows.

    Raises:
        SchemaError: The text is not an option.
    """
    if tokens.accept("DEFAULT") or any(tokens.sees(word) for word in _OF_DEFINITION):
        read_option(tokens, found.options)
        if found.options.select:
            raise SchemaError("An action of ALTER TABLE is not known.")
        return
    with tokens.keeping() as taken:
        tokens.take()
        tokens.accept("=")
        if tokens.sees("("):
            tokens.skip_parenthesis()
        elif not tokens.at_end and not tokens.sees(","):
            tokens.take()
    name, value = taken[0].text.upper(), taken[-1].text.upper()
    if name not in _OPTIONS and not (name in ("ENGINE", "TYPE") and value in _ENGINES):
        found.unproven.append(_shown(taken))
