"""The tables that UPDATE and DELETE read from or write to: `a, b AS x LEFT JOIN (c JOIN d) ON … USING (…)`.

In: a cursor at the first of them. Out: the references in order, the cursor where they end: before SET, WHERE, ORDER,
LIMIT or RETURNING, or at the end. A derived table is a reference without a table. Refused, as a SchemaError: what is no
list of tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError

if TYPE_CHECKING:
    from replica.schema.cursor import Tokens
    from replica.schema.known_tables import TableName

_ENDS: Final = ("SET", "WHERE", "ORDER", "LIMIT", "RETURNING")
_JOINS: Final = (",", "JOIN", "STRAIGHT_JOIN")
_NO_ALIAS: Final = frozenset(
    (
        *_ENDS,
        *_JOINS,
        *("INNER", "CROSS", "LEFT", "RIGHT", "OUTER", "NATURAL", "ON", "USING", "USE", "FORCE", "IGNORE"),
        *("PARTITION", "FOR"),
    )
)


class Reference(NamedTuple):
    """One table of the list. `name` is what columns are qualified with: the alias, or the table's own."""

    name: str
    table: TableName | None


def read_references(tokens: Tokens, database: str) -> list[Reference]:
    """Read the references up to what ends them; at least one."""
    found: list[Reference] = []
    depth = 0
    expected = True
    while depth or not (tokens.at_end or any(tokens.sees(word) for word in _ENDS)):
        if expected:
            if tokens.sees("(") and not _is_query(tokens):
                tokens.take()
                depth += 1
                continue
            found.append(_reference(tokens, database))
            expected = False
        elif tokens.accept_any(*_JOINS):
            expected = True
        elif tokens.sees("("):
            tokens.skip_parenthesis()  # of ON, USING, hints
        elif tokens.accept(")"):
            depth -= 1
            if depth < 0:
                raise SchemaError("A parenthesis ends that was not begun.")
        else:
            tokens.take()
    if expected:
        raise SchemaError("A table was expected.")
    return found


def _is_query(tokens: Tokens) -> bool:
    return any(tokens.sees(word, ahead=1) for word in ("SELECT", "WITH", "VALUES"))


def _reference(tokens: Tokens, database: str) -> Reference:
    tokens.accept("LATERAL")
    table: TableName | None = None
    if not tokens.sees("("):
        table = tokens.table_name(database)
    if tokens.sees("("):  # the query of a derived table, or the arguments of JSON_TABLE
        tokens.skip_parenthesis()
        table = None
    if tokens.accept("PARTITION"):
        tokens.skip_parenthesis()
    if tokens.accept("FOR", "PORTION", "OF"):
        while not tokens.accept("TO"):
            tokens.take()
    return Reference(_alias(tokens) or (table[1] if table else ""), table)


def _alias(tokens: Tokens) -> str:
    token = tokens.peek()
    if tokens.accept("AS"):
        return tokens.name()
    if token is None or token.kind in ("symbol", "string") or token.upper in _NO_ALIAS:
        return ""
    return tokens.name()
