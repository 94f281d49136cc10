"""Parser of a column, a key or a constraint in CREATE and ALTER TABLE, to `ColumnItem`, `Key`, or nothing.

The parser reads type, sign, character set, keys, versioning, comment, and the tokens of a default. It skips checks,
references and generated values, because they do not change the bytes of a row. A word that is not an attribute in
MariaDB is a SchemaError, because the word may change those bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.errors import SchemaError
from replica.schema.definition.column import AS_BYTES, Column, read_type
from replica.schema.definition.definition import (
    PRIMARY,
    UNKNOWN,
    ColumnItem,
    Encoding,
    Key,
    Table,
    new_table,
    own_encoding,
    period_key,
)
from replica.schema.definition.session import WIDE, StatementContext
from replica.schema.text.sql_tokens import Token

if TYPE_CHECKING:
    from replica.schema.text.cursor import Tokens

EMPTY_STRING_IS_NULL: Final = 1 << 32
_NULL: Final = "NULL"
_IGNORED: Final = (
    "INVISIBLE", "VISIBLE", "VIRTUAL", "PERSISTENT", "STORED", "SIGNED", "HIDDEN",
)  # fmt: skip
_OF_ITEM: Final[dict[tuple[str, ...], dict[str, Any]]] = {
    ("PRIMARY", "KEY"): {"primary": True},
    ("PRIMARY",): {"primary": True},
    ("KEY",): {"primary": True},
    ("UNIQUE", "KEY"): {"unique": True},
    ("UNIQUE", "INDEX"): {"unique": True},
    ("UNIQUE",): {"unique": True},
    ("WITH", "SYSTEM", "VERSIONING"): {"versioned": True, "unproven": "WITH SYSTEM VERSIONING"},
    ("WITHOUT", "SYSTEM", "VERSIONING"): {"unproven": "WITHOUT SYSTEM VERSIONING"},
    ("AUTO_INCREMENT",): {"numbered": True},
    ("ASCII",): {"charset": "latin1"},
    ("UNICODE",): {"charset": "ucs2"},
    ("NOT", "ENFORCED"): {},
    ("ENFORCED",): {},
    ("BINARY",): {},  # selects a collation, not a character set
}
_OF_COLUMN: Final[dict[tuple[str, ...], dict[str, Any]]] = {
    ("UNSIGNED",): {"unsigned": True},
    ("ZEROFILL",): {"unsigned": True, "zerofill": True},
    ("NOT", "NULL"): {"nullable": False},
    ("NULL",): {"nullable": True},
}
_VALUED: Final = ("STORAGE", "COLUMN_FORMAT", "REF_SYSTEM_ID", "SRID")
_FRACTION: Final = re.compile(r"\d+([eE]\d*)?|[eE]\d*")
_CHARSET: Final = (("CHARACTER", "SET"), ("CHAR", "SET"), ("CHARSET",))


def read_column(tokens: Tokens, session: StatementContext) -> ColumnItem:
    """Parse a column, from its name to the comma or parenthesis after it; FIRST and AFTER are included."""
    name = tokens.name()
    check_mode(tokens, name)
    column = read_type(tokens, name, session)
    serial = column.nullable is False
    item = ColumnItem(column=column, unique=serial, numbered=serial)
    while not _ends(tokens):
        if tokens.accept("SERIAL", "DEFAULT", "VALUE"):
            item = replace(item, unique=True, numbered=True, column=replace(item.column, nullable=False))
        else:
            item = _attribute(tokens, item, session)
    if tokens.accept("FIRST"):
        item = replace(item, position="")
    elif tokens.accept("AFTER"):
        item = replace(item, position=tokens.name())
    if item.primary:  # NOT NULL even if the key is not created, because IF NOT EXISTS finds one
        item = replace(item, column=replace(item.column, nullable=False))
    if not session.explicit_timestamps and column.data_type == "timestamp" and item.column.nullable is None:
        item = replace(item, column=replace(item.column, nullable=False))
    return item


def _ends(tokens: Tokens) -> bool:
    return tokens.at_end or any(tokens.sees(word) for word in (",", ")", "FIRST", "AFTER", "PARTITION"))


def _attribute(tokens: Tokens, item: ColumnItem, session: StatementContext) -> ColumnItem:
    for words, fields in _OF_ITEM.items():
        if tokens.accept(*words):
            return replace(item, **fields)
    for words, fields in _OF_COLUMN.items():
        if tokens.accept(*words):
            return replace(item, column=replace(item.column, **fields))
    charset = accept_charset(tokens)
    if charset is not None:
        return replace(item, charset=charset)
    if tokens.accept("COLLATE"):
        tokens.accept("=")
        return replace(item, collation=_option(tokens))
    if tokens.accept("DEFAULT"):
        return replace(item, default=read_default(tokens, session))
    return item if _stepped_over(tokens) else _with_value(tokens, item)


def _with_value(tokens: Tokens, item: ColumnItem) -> ColumnItem:
    """Parse COMMENT 'x', COMPRESSED=zlib, AS (…), AS ROW START, or an attribute of an engine."""
    column = item.column
    if tokens.accept("BYTE") and column.data_type in AS_BYTES:
        return replace(item, column=replace(column, data_type=AS_BYTES[column.data_type]))
    if tokens.accept("COMMENT"):
        tokens.accept("=")
        return replace(item, column=replace(column, comment=tokens.string()))
    if tokens.accept("GENERATED", "ALWAYS", "AS") or tokens.accept("AS"):
        return replace(item, column=_generated(tokens, column))
    if tokens.accept("COMPRESSED"):
        item = replace(item, column=replace(column, compressed=True))
    else:
        token = tokens.take()
        if token.kind not in ("word", "name") or not tokens.sees("="):
            raise SchemaError(f"Column {column.name} has the attribute {token.text}, which is not known.")
        item = replace(item, unproven=token.text)
    if tokens.accept("="):
        tokens.take()
    return item


def _generated(tokens: Tokens, column: Column) -> Column:
    if tokens.accept("ROW"):
        return replace(column, period="start" if tokens.accept_any("START", "END") == "START" else "end")
    tokens.skip_parenthesis()
    return replace(column, computed=True)


def _stepped_over(tokens: Tokens) -> bool:
    if tokens.accept_any(*_IGNORED):
        return True
    if tokens.accept("ON", "UPDATE"):
        skip_default(tokens)
    elif tokens.accept("CONSTRAINT"):
        if not tokens.sees("CHECK") and not tokens.sees("REFERENCES"):
            tokens.name()
    elif tokens.accept("CHECK"):
        tokens.skip_parenthesis()
    elif tokens.accept("REFERENCES"):
        _skip_references(tokens)
    elif tokens.accept_any(*_VALUED):
        tokens.accept("=")
        tokens.take()
    else:
        return False
    return True


def _skip_references(tokens: Tokens) -> None:
    tokens.table_name("")
    if tokens.sees("("):
        tokens.skip_parenthesis()
    while True:
        if tokens.accept("MATCH"):
            tokens.take()
        elif tokens.accept("ON", "DELETE") or tokens.accept("ON", "UPDATE"):
            if not tokens.accept_any("RESTRICT", "CASCADE"):
                tokens.take()  # SET NULL, SET DEFAULT, NO ACTION
                tokens.take()
        else:
            return


def read_default(tokens: Tokens, session: StatementContext) -> tuple[Token, ...]:
    """Parse the value after DEFAULT, with texts as the server stores them.

    A text that the server would change, or store as other bytes, becomes U+FFFD, which marks its value as unknown.
    """
    with tokens.keeping() as taken:
        skip_default(tokens)
    return tuple(_literal(token, session) for token in taken)


def _literal(token: Token, session: StatementContext) -> Token:
    if token.kind not in ("string", "double"):
        return token
    if not token.text and session.sql_mode & EMPTY_STRING_IS_NULL:
        return Token("word", _NULL, _NULL)
    return token if session.can_encode(token.text) and session.connection not in WIDE else replace(token, text="\ufffd")


def check_mode(tokens: Tokens, name: str) -> None:
    """Refuse a column whose meaning depends on an unknown sql_mode."""
    if tokens.mode_unknown:
        raise SchemaError(
            f"Column {name} is declared under a sql_mode that SET STATEMENT sets and the binlog does not contain."
        )


def skip_default(tokens: Tokens) -> None:
    """Skip any value after DEFAULT: a literal, a function call, CASE … END, or an expression in parentheses."""
    while tokens.accept_any("+", "-", "~"):
        pass
    if tokens.sees("("):
        tokens.skip_parenthesis()
        return
    if tokens.accept("CASE"):
        _skip_case(tokens)
        return
    tokens.accept("NEXT", "VALUE", "FOR")
    tokens.accept(".")
    first = tokens.take()
    _skip_number(tokens, first.text)
    while True:
        following = tokens.peek()
        if following is not None and following.kind in ("string", "double"):  # N'…', DATE '…', 'a' 'b'
            tokens.take()
        elif tokens.accept("."):
            if not _ends(tokens):
                tokens.take()
        elif tokens.sees("("):
            tokens.skip_parenthesis()
        else:
            return


def _skip_number(tokens: Tokens, text: str) -> None:
    """Skip the rest of 1e-5, 1.5e+3 or 1.e5, which the lexer splits into several tokens."""
    if not text[:1].isdigit():
        return
    following = tokens.peek(1)
    if tokens.accept(".") and following is not None and _FRACTION.fullmatch(following.text):
        text = tokens.take().text
    if text[-1] in "eE" and tokens.accept_any("+", "-"):
        tokens.take()


def _skip_case(tokens: Tokens) -> None:
    depth = 1
    while depth:
        token = tokens.take()
        depth += {"CASE": 1, "END": -1}.get(token.upper, 0)


def accept_charset(tokens: Tokens) -> str | None:
    """Parse the name after CHARACTER SET, in lower case; None if these words do not come next."""
    if not any(tokens.accept(*words) for words in _CHARSET):
        return None
    tokens.accept("=")
    return _option(tokens)


def _option(tokens: Tokens) -> str:
    return tokens.take().text.lower()


def starts_key(tokens: Tokens) -> bool:
    """Return True if a key, a constraint or a period comes next, not a column."""
    token = tokens.peek()
    if token is None or not token.upper:
        return False
    if token.upper in ("PERIOD", "VECTOR"):  # valid names of columns, too
        return tokens.sees("FOR", ahead=1) or tokens.sees("KEY", ahead=1) or tokens.sees("INDEX", ahead=1)
    return token.upper in (
        "CONSTRAINT", "PRIMARY", "UNIQUE", "KEY", "INDEX", "FULLTEXT", "SPATIAL", "FOREIGN", "CHECK",
    )  # fmt: skip


def read_key(tokens: Tokens) -> Key | None:
    """Parse a primary or unique key, or a period; skip other keys and constraints and return None."""
    if tokens.accept("PERIOD", "FOR"):
        return Key(name=period_key(tokens.name()), parts=tuple(_key_parts(tokens)), period=True)
    named = ""
    if tokens.accept("CONSTRAINT") and not any(tokens.sees(w) for w in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK")):
        named = tokens.name()
    kind = tokens.accept_any("PRIMARY", "UNIQUE")
    if not kind:
        tokens.skip_item()
        return None
    tokens.accept_any("KEY", "INDEX")
    tokens.accept("IF", "NOT", "EXISTS")
    if not tokens.sees("(") and not tokens.sees("USING") and not tokens.sees("TYPE"):
        named = tokens.name()
    hashed = _accept_hash(tokens)
    parts = _key_parts(tokens)
    while not _ends(tokens) and not tokens.sees("REMOVE", "PARTITIONING"):
        hashed = _accept_hash(tokens) or hashed
        if not _ends(tokens):
            tokens.take()
    if not parts:
        return None
    name = PRIMARY if kind == "PRIMARY" else named or parts[0][0]
    return Key(name=name, parts=tuple(parts), primary=kind == "PRIMARY", hashed=hashed)


def _accept_hash(tokens: Tokens) -> bool:
    return bool(tokens.accept_any("USING", "TYPE")) and tokens.take().upper == "HASH"


def _key_parts(tokens: Tokens) -> list[tuple[str, int | None]]:
    tokens.expect("(")
    parts: list[tuple[str, int | None]] = []
    while True:
        if tokens.sees("("):  # MySQL's key on an expression
            tokens.skip_parenthesis()
        else:
            name, prefix = tokens.name(), tokens.numbers()
            name = period_key(name) if tokens.accept("WITHOUT", "OVERLAPS") else name
            parts.append((name, prefix[0] if prefix else None))
        tokens.accept_any("ASC", "DESC")
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return parts


# `read_create_table` takes a cursor after the table's name, the encoding of the database, and the session's context. It
# returns the table that the server creates. CREATE TABLE … SELECT without column types is a SchemaError (row-based
# binlogs always have the types), and so is text that cannot be parsed.


_SEQUENCE_COMMENTS: Final = {
    "next_not_cached_value": "",
    "minimum_value": "",
    "maximum_value": "",
    "start_value": "start value when sequences is created or value if RESTART is used",
    "increment": "increment value",
    "cache_size": "",
    "cycle_option": (
        "0 if no cycles are allowed, 1 if the sequence should begin a new cycle when maximum_value is passed"
    ),
    "cycle_count": "How many cycles have been done",
}
_SEQUENCE_WIDTHS: Final = {"tinyint": 5, "smallint": 7, "mediumint": 10, "int": 12, "bigint": 21}
_TYPED_BY_AS: Final = ("next_not_cached_value", "minimum_value", "maximum_value", "start_value")


class Like(NamedTuple):
    """Table that CREATE TABLE … LIKE names."""

    database: str
    table: str


@dataclass(slots=True, kw_only=True)
class Options:
    """Relevant table options parsed so far."""

    charset: str | None = None
    collation: str | None = None
    versioned: bool = False
    select: bool = False

    def encoding(self, default: Encoding, otherwise: Encoding | None = None) -> Encoding:
        """Return the encoding that the options select; without them `otherwise`, or the default."""
        return own_encoding(self.charset, self.collation, default) or otherwise or default


def read_create_table(tokens: Tokens, default: Encoding, session: StatementContext) -> Table | Like:
    """Parse CREATE TABLE, from the token after the table's name. `default` is the database's encoding."""
    if tokens.accept("LIKE") or (tokens.sees("(", "LIKE") and tokens.accept("(", "LIKE")):
        return Like(*tokens.table_name(session.database))
    items: list[ColumnItem] = []
    keys: list[Key] = []
    if tokens.sees("(") and not any(tokens.sees(word, ahead=1) for word in ("SELECT", "WITH", "VALUES", "(")):
        items, keys = read_items(tokens, session)
    options = Options()
    while not tokens.at_end and not options.select and not tokens.sees("PARTITION", "BY"):
        read_option(tokens, options)
        tokens.accept(",")
    if options.select or not items:
        raise SchemaError("The columns come from a SELECT, and the statement does not give their types.")
    return new_table(
        items,
        keys,
        options.encoding(default),
        versioned=options.versioned,
        server_version=session.server.version,
    )


def read_items(tokens: Tokens, session: StatementContext) -> tuple[list[ColumnItem], list[Key]]:
    """Parse the list in parentheses: columns, and the keys that identify rows."""
    items: list[ColumnItem] = []
    keys: list[Key] = []
    tokens.expect("(")
    while True:
        if starts_key(tokens):
            key = read_key(tokens)
            keys += [key] if key else []
        else:
            items.append(read_column(tokens, session))
        if not tokens.accept(","):
            break
    tokens.expect(")")
    return items, keys


def read_option(tokens: Tokens, options: Options) -> None:
    """Parse one table option; a word or value of an irrelevant option is skipped."""
    charset = accept_charset(tokens)
    if charset is not None:
        options.charset = charset
    elif tokens.accept("COLLATE"):
        tokens.accept("=")
        options.collation = tokens.take().text.lower()
    elif tokens.accept("WITH", "SYSTEM", "VERSIONING"):
        options.versioned = True
    elif tokens.accept_any("SELECT", "WITH", "VALUES", "AS"):
        options.select = True
    elif tokens.sees("("):  # UNION=(…), or a SELECT in parentheses
        options.select = tokens.sees("SELECT", ahead=1)
        tokens.skip_parenthesis()
    else:
        tokens.take()


def read_sequence(tokens: Tokens, otherwise: Table | None) -> Table | None:
    """Return a sequence's columns with the type after AS (11.5 and later); without AS, `otherwise`."""
    while not tokens.at_end:
        if tokens.accept("AS"):
            declared = read_type(tokens, "", StatementContext())
            if declared.data_type not in _SEQUENCE_WIDTHS:
                raise SchemaError(f"A sequence cannot have the type {declared.data_type}.")
            return _sequence(declared.data_type, unsigned=tokens.accept("UNSIGNED"))
        tokens.take()
    return otherwise


def _sequence(data_type: str, *, unsigned: bool = False) -> Table:
    columns = []
    for name, comment in _SEQUENCE_COMMENTS.items():
        typed = (data_type, unsigned) if name in _TYPED_BY_AS else ("bigint", name == "cache_size")
        if name == "cycle_option":
            typed = ("tinyint", True)
        width = 1 if name == "cycle_option" else _SEQUENCE_WIDTHS[typed[0]]
        columns.append(
            Column(name=name, data_type=typed[0], digits=(width,), unsigned=typed[1], nullable=False, comment=comment)
        )
    return Table(columns=tuple(columns), encoding=UNKNOWN)


SEQUENCE: Final = _sequence("bigint")
"""Definition of a sequence that is created without AS."""
