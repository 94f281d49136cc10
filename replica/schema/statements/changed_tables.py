"""Tables whose rows a statement of the binlog changes, if it is logged as text and not as row events.

`changed_tables` takes a QUERY, or the LOAD DATA of an EXECUTE_LOAD_QUERY. It returns `Changed`, or None for a statement
that changes no rows: the borders of transactions, settings, accounts, DDL. Of several tables in a statement, only the
changed ones are returned, or all if the text is ambiguous. A statement that cannot be parsed (SELECT f(), a new
keyword, truncated text) may change any table; it never raises an error.

The text does not show rows that change through a view, a trigger, a stored function in a value, or a foreign key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.protocol.constants import GtidExtraFlag
from replica.schema.definition.session import ANY_SERVER, session_of, text_of
from replica.schema.statements.statements import open_statement
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.schema.definition.session import Logged, ServerRules, StatementContext
    from replica.schema.known_tables import TableName
    from replica.schema.text.cursor import Tokens

_UNDONE: Final = GtidExtraFlag.START_ALTER | GtidExtraFlag.ROLLBACK_ALTER
_WITHOUT_ROWS: Final = frozenset(
    (
        *("BACKUP", "CACHE", "CHANGE", "CHECK", "CHECKSUM", "COMMIT", "DEALLOCATE"),
        *("DESC", "DESCRIBE", "DROP", "EXPLAIN", "FLUSH", "GRANT", "HELP"),
        *("INSTALL", "KILL", "LOCK", "OPTIMIZE", "PREPARE", "PURGE", "RELEASE"),
        *("RENAME", "REPAIR", "RESET", "RESIGNAL", "REVOKE", "ROLLBACK", "SAVEPOINT"),
        *("SET", "SHOW", "SHUTDOWN", "SIGNAL", "START", "STOP", "UNINSTALL"),
        *("UNLOCK", "USE", "XA"),
    )
)
_MODIFIERS: Final = ("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "CONCURRENT", "QUICK", "IGNORE", "LOCAL")


class Changed(NamedTuple):
    """Tables that a statement changes.

    Attributes:
            tables: The changed tables; empty if the statement may have changed any table.
            defines: Whether the statement is DDL that also changes rows.
            removes: Whether the statement only removes rows.
    """

    tables: tuple[TableName, ...] = ()
    defines: bool = False
    removes: bool = False


def changed_tables(statement: Logged, server: ServerRules = ANY_SERVER) -> Changed | None:
    """Return the tables that the statement changes, by the rules of the server that wrote it."""
    if (statement.status.gtid_flags_extra or 0) & _UNDONE:
        return None
    return changed_by(text_of(statement), session_of(statement, server))


def changed_by(text: str, session: StatementContext) -> Changed | None:
    """Return the tables that the text of a statement changes, in a session."""
    try:
        changed = _read(open_statement(text, session), session.database)
    except SchemaError:
        return Changed()
    if changed is not None and changed.defines and session.uses_temporary:
        return None
    if changed is not None and any(not database for database, _ in changed.tables):
        return Changed()  # a table without a database: the text or the default database is damaged
    return changed


def _read(tokens: Tokens, database: str) -> Changed | None:
    first = tokens.peek()
    if first is None or first.upper in _WITHOUT_ROWS:
        return None
    tokens.take()
    read = _READERS.get(first.upper)
    return Changed() if read is None else read(tokens, database)


def _skip_modifiers(tokens: Tokens) -> None:
    while tokens.accept_any(*_MODIFIERS):
        pass


def _begun(tokens: Tokens, _: str) -> Changed | None:
    return None if tokens.at_end or tokens.accept("WORK") else Changed()


def _inserted(tokens: Tokens, database: str) -> Changed:
    """Parse INSERT and REPLACE, with any source of rows."""
    _skip_modifiers(tokens)
    tokens.accept("INTO")
    return Changed((tokens.table_name(database),))


def _loaded(tokens: Tokens, database: str) -> Changed:
    """Parse LOAD DATA and LOAD XML: INFILE '…' [REPLACE | IGNORE] INTO TABLE."""
    while not tokens.accept("INTO", "TABLE"):
        tokens.take()
    return Changed((tokens.table_name(database),))


def _emptied(tokens: Tokens, database: str) -> Changed:
    tokens.accept("TABLE")
    return Changed((tokens.table_name(database),), defines=True, removes=True)


def _deleted(tokens: Tokens, database: str) -> Changed:
    """Parse DELETE FROM t, DELETE a, b FROM …, DELETE FROM a, b USING …, DELETE HISTORY FROM t."""
    _skip_modifiers(tokens)
    if tokens.accept("HISTORY", "FROM"):
        return Changed((tokens.table_name(database),), removes=True)
    begins = tokens.accept("FROM")
    targets = [_deletion_target(tokens)]
    while tokens.accept(","):
        targets.append(_deletion_target(tokens))
    if begins and not tokens.accept("USING"):
        return Changed(tuple((named or database, table) for named, table in targets), removes=True)
    if not begins:
        tokens.expect("FROM")
    references = read_references(tokens, database)
    tables = dict.fromkeys(table for target in targets for table in _referred(target, references))
    return Changed(tuple(tables), removes=True)


def _deletion_target(tokens: Tokens) -> tuple[str, str]:
    """Parse `t`, `t.*`, `d.t` or `d.t.*`; the database is '' if none is named."""
    tokens.accept(".")
    names = [tokens.stored_name()]
    while tokens.accept("."):
        if tokens.accept("*"):
            break
        names.append(tokens.stored_name())
    return (names[-2] if len(names) > 1 else ""), names[-1]


def _updated(tokens: Tokens, database: str) -> Changed:
    _skip_modifiers(tokens)
    references = read_references(tokens, database)
    everything = Changed(tuple(dict.fromkeys(one.table for one in references if one.table is not None)))
    if len(everything.tables) == 1:
        return everything
    tokens.expect("SET")
    found: dict[TableName, None] = {}
    while True:
        *qualifiers, _ = _column(tokens)
        if not tokens.accept_any("=", ":"):  # the previous comma belonged to ORDER BY
            break
        if not qualifiers:
            return everything  # an unqualified column may belong to any of the tables
        found.update(dict.fromkeys(_referred(("".join(qualifiers[:-1]), qualifiers[-1]), references)))
        tokens.skip_item()
        if not tokens.accept(","):
            break
    return Changed(tuple(found))


def _column(tokens: Tokens) -> list[str]:
    """Parse `c`, `t.c` or `d.t.c`."""
    names = [tokens.name()]
    while tokens.accept("."):
        names.append(tokens.name())
    return names


def _referred(target: tuple[str, str], references: list[Reference]) -> list[TableName]:
    """Return the table that a name refers to among the references; all of them if there is no match."""
    database, name = (column_key(part) for part in target)
    tables = [(column_key(one.name), one.table) for one in references if one.table is not None]
    matching = [
        table for alias, table in tables if alias == name and (not database or column_key(table[0]) == database)
    ]
    return matching or [table for _, table in tables]


def _created(tokens: Tokens, database: str) -> Changed | None:
    """Parse CREATE TABLE … SELECT. In statement format, the binlog has the SELECT but no events of the rows."""
    tokens.accept("OR", "REPLACE")
    if not tokens.accept("TABLE"):
        return None  # CREATE TEMPORARY TABLE, or another statement
    tokens.accept("IF", "NOT", "EXISTS")
    name = tokens.table_name(database)
    depth = 0
    while (token := tokens.peek()) is not None:
        if token.upper == "SELECT" or (not depth and token.upper in ("VALUES", "WITH") and not _is_option(tokens)):
            return Changed((name,))
        depth += {"(": 1, ")": -1}.get(token.text, 0) if token.kind == "symbol" else 0
        tokens.take()
    return None


def _is_option(tokens: Tokens) -> bool:
    return tokens.sees("WITH", "SYSTEM") or tokens.sees("VALUES", "LESS") or tokens.sees("VALUES", "IN")


def _altered(tokens: Tokens, database: str) -> Changed | None:
    """Parse ALTER TABLE on partitions and table spaces, which also changes rows."""
    tokens.accept("ONLINE")
    tokens.accept("IGNORE")
    if not tokens.accept("TABLE"):
        return None
    tokens.accept("IF", "EXISTS")
    tables = [tokens.table_name(database)]
    if tokens.accept("WAIT"):
        tokens.number()
    tokens.accept("NOWAIT")
    removes, changes_rows = True, False
    while not tokens.at_end:
        if tokens.accept("TRUNCATE", "PARTITION") or tokens.accept("DROP", "PARTITION"):
            changes_rows = True
        elif tokens.accept("EXCHANGE", "PARTITION") or tokens.accept("CONVERT", "PARTITION"):
            while not tokens.accept("TABLE"):
                tokens.take()
            tables.append(tokens.table_name(database))
            changes_rows, removes = True, False
        elif tokens.accept("CONVERT", "TABLE"):
            tables.append(tokens.table_name(database))
            changes_rows, removes = True, False
        elif tokens.sees("IMPORT") or tokens.sees("DISCARD"):
            changes_rows, removes = True, False
        tokens.skip_item()
        if not tokens.accept(",") and not tokens.at_end:
            tokens.take()  # an unbalanced parenthesis
    return Changed(tuple(tables), defines=True, removes=removes) if changes_rows else None


def _analyzed(tokens: Tokens, database: str) -> Changed | None:
    """Parse ANALYZE TABLE, or ANALYZE [FORMAT = JSON] UPDATE …, which executes the statement."""
    if tokens.accept("FORMAT"):
        tokens.accept("=")
        tokens.take()
    if any(tokens.sees(word) for word in ("TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG")):
        return None
    return _read(tokens, database)


def _skip_queries(tokens: Tokens) -> None:
    """Skip the queries of WITH, up to the statement that uses them."""
    tokens.accept("RECURSIVE")
    while True:
        tokens.name()
        if tokens.sees("("):
            tokens.skip_parenthesis()
        tokens.expect("AS")
        tokens.skip_parenthesis()
        if tokens.accept("CYCLE"):
            while not tokens.accept("RESTRICT"):
                tokens.take()
        if not tokens.accept(","):
            return


def _with_queries(tokens: Tokens, database: str) -> Changed | None:
    _skip_queries(tokens)
    return _read(tokens, database) if tokens.sees("UPDATE") or tokens.sees("DELETE") else Changed()


_READERS: Final[dict[str, Callable[[Tokens, str], Changed | None]]] = {
    "BEGIN": _begun,
    "INSERT": _inserted,
    "REPLACE": _inserted,
    "UPDATE": _updated,
    "DELETE": _deleted,
    "LOAD": _loaded,
    "TRUNCATE": _emptied,
    "CREATE": _created,
    "ALTER": _altered,
    "ANALYZE": _analyzed,
    "WITH": _with_queries,
}
"""Parsers by the first word, which is already taken."""


# Table references of UPDATE and DELETE: `a, b AS x LEFT JOIN (c JOIN d) ON … USING (…)`.
#
# The parser leaves the cursor after the references: before SET, WHERE, ORDER, LIMIT or RETURNING, or at the end. A
# derived table is a reference without a table. Text that is not a list of tables is a SchemaError.

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
    """One table of the list. `name` qualifies columns: the alias, or the table's own name."""

    name: str
    table: TableName | None


def read_references(tokens: Tokens, database: str) -> list[Reference]:
    """Parse the references up to a word that ends them; at least one."""
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
            tokens.skip_parenthesis()  # after ON, USING, or in hints
        elif tokens.accept(")"):
            depth -= 1
            if depth < 0:
                raise SchemaError("A closing parenthesis has no opening one.")
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
