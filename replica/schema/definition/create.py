"""Parser of CREATE TABLE and CREATE SEQUENCE: from the text after the name to a `Table`, or to the table after LIKE.

The arguments are a cursor after the table's name, the encoding of the database, and the session's context. The result
is the table that the server creates. CREATE TABLE … SELECT without column types is a SchemaError (row-based binlogs
always have them), and so is text that cannot be parsed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.schema.definition.column import Column
from replica.schema.definition.column_types import read_type
from replica.schema.definition.columns import accept_charset, read_column, read_key, starts_key
from replica.schema.definition.definition import UNKNOWN, ColumnItem, Encoding, Key, Table, new_table, own_encoding
from replica.schema.definition.session import StatementContext

if TYPE_CHECKING:
    from replica.schema.text.cursor import Tokens

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
