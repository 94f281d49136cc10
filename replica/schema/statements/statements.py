"""Parser of a statement's head: its kind, and the tables or databases that it names.

`read_head` returns a `Statement` whose `tokens` follow the head, or None for statements that define no table (DML,
BEGIN, views, routines, users). A table name in the head that cannot be parsed is a SchemaError. Names are as the server
stores them.
"""

from __future__ import annotations

import mmap
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from enum import Enum, auto
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.protocol.constants import HeaderFlag
from replica.schema.definition.session import ANY_SERVER, session_of, text_of
from replica.schema.text.cursor import Tokens
from replica.schema.text.sql_tokens import tokenize

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.schema.definition.session import Logged, ServerRules, StatementContext
    from replica.schema.known_tables import TableName

# Skips plain comments, which clients put before statements; an executable comment may contain a statement.
_FIRST = re.compile(
    rb"(?>(?:\s|--[^\n]*\n|\#[^\n]*\n|/\*(?!M?!).*?\*/)*)(?:CREATE|ALTER|DROP|RENAME|REPAIR|SET|/\*M?!)",
    re.IGNORECASE | re.DOTALL,
)


class Verb(Enum):
    CREATE_TABLE = auto()
    TRUNCATE_TABLE = auto()
    CREATE_INDEX = auto()
    DROP_INDEX = auto()
    CREATE_SEQUENCE = auto()
    ALTER_TABLE = auto()
    ALTER_SEQUENCE = auto()
    DROP_TABLES = auto()
    RENAME_TABLES = auto()
    REPAIR_TABLES = auto()
    CREATE_DATABASE = auto()
    ALTER_DATABASE = auto()
    DROP_DATABASE = auto()
    USE = auto()


TableNames = tuple[tuple[str, str], ...]

ROWS_OR_INDEXES: Final = (Verb.TRUNCATE_TABLE, Verb.CREATE_INDEX, Verb.DROP_INDEX, Verb.REPAIR_TABLES)
"""Statements that do not change the columns of a table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The head of a statement.

    Attributes:
        verb: The kind of statement.
        tokens: A cursor after the head.
        tables: (database, table) in order; for RENAME old, new, old, new.
        database: The database of CREATE DATABASE, USE, …
        temporary: Whether the statement concerns only a temporary table of its session.
    """

    verb: Verb
    tokens: Tokens
    tables: TableNames = ()
    database: str = ""
    temporary: bool = False
    or_replace: bool = False
    conditional: bool = False  # IF EXISTS, IF NOT EXISTS
    ignores: bool = False  # ALTER IGNORE TABLE, which may remove rows


def may_define(query: bytes) -> bool:
    """Return True if a text may be DDL, by its first letters. Most statements are not DDL and need no lexer."""
    return _FIRST.match(query) is not None


def read_statement(text: str, session: StatementContext) -> Statement | None:
    """Return the head of a statement that may change the columns of tables."""
    head = read_head(text, session)
    return None if head is None or head.verb in ROWS_OR_INDEXES else head


def read_head(text: str, session: StatementContext) -> Statement | None:
    """Return the statement's head, including TRUNCATE, CREATE INDEX, DROP INDEX and REPAIR TABLE."""
    head = _head(text, session)
    if head is not None and session.uses_temporary and head.verb in (Verb.ALTER_TABLE, *ROWS_OR_INDEXES):
        return replace(head, temporary=True)
    return head


def _head(text: str, session: StatementContext) -> Statement | None:  # noqa: PLR0911  (one for each verb)
    database = session.database
    tokens = open_statement(text, session)
    verb = tokens.accept_any("CREATE", "ALTER", "DROP", "RENAME", "REPAIR", "USE", "TRUNCATE")
    match verb:
        case "CREATE":
            return _index(tokens, database, Verb.CREATE_INDEX) or _create(tokens, database)
        case "ALTER":
            return _alter(tokens, database)
        case "DROP":
            return _index(tokens, database, Verb.DROP_INDEX) or _drop(tokens, database)
        case "RENAME" if tokens.accept_any("TABLE", "TABLES"):
            return Statement(verb=Verb.RENAME_TABLES, tokens=tokens, tables=_renamed(tokens, database))
        case "REPAIR":
            return _repair(tokens, database)
        case "USE":
            return Statement(verb=Verb.USE, tokens=tokens, database=tokens.stored_name())
        case "TRUNCATE":
            tokens.accept("TABLE")
            return Statement(verb=Verb.TRUNCATE_TABLE, tokens=tokens, tables=(tokens.table_name(database),))
    return None


def open_statement(text: str, session: StatementContext) -> Tokens:
    """Return a cursor at the first word of a statement, after any number of SET STATEMENT … FOR.

    The server parses the whole text by the previous sql_mode, and logs the sql_mode that SET STATEMENT sets. On 10.5,
    10.11 and 11.8, `SET STATEMENT sql_mode='ORACLE' FOR ALTER TABLE t ADD d DATE` adds a date.
    """
    rules = session.server
    tokens = Tokens(
        tokenize(text, sql_mode=session.sql_mode, server_version=rules.version), lower_case=rules.lower_case
    )
    while tokens.accept("SET", "STATEMENT"):
        while not tokens.accept("FOR"):
            if tokens.sees("("):
                tokens.skip_parenthesis()
            elif tokens.take().text.lower() == "sql_mode":
                tokens.mode_unknown = True
    return tokens


def _index(tokens: Tokens, database: str, verb: Verb) -> Statement | None:
    """Parse CREATE INDEX and DROP INDEX; for another statement, return None and take no token."""
    ahead = 2 if tokens.sees("OR", "REPLACE") else 0
    ahead += any(tokens.sees(word, ahead=ahead) for word in ("UNIQUE", "FULLTEXT", "SPATIAL", "VECTOR"))
    if not tokens.sees("INDEX", ahead=ahead):
        return None
    or_replace = ahead > 1
    while not tokens.accept("ON"):
        tokens.take()
    return Statement(verb=verb, tokens=tokens, tables=(tokens.table_name(database),), or_replace=or_replace)


def _create(tokens: Tokens, database: str) -> Statement | None:
    or_replace = tokens.accept("OR", "REPLACE")
    temporary = tokens.accept("TEMPORARY")
    what = tokens.accept_any("TABLE", "SEQUENCE", "DATABASE", "SCHEMA")
    if not what:
        return None
    conditional = tokens.accept("IF", "NOT", "EXISTS")
    if what in ("DATABASE", "SCHEMA"):
        return Statement(
            verb=Verb.CREATE_DATABASE,
            tokens=tokens,
            database=tokens.stored_name(),
            or_replace=or_replace,
            conditional=conditional,
        )
    return Statement(
        verb=Verb.CREATE_TABLE if what == "TABLE" else Verb.CREATE_SEQUENCE,
        tokens=tokens,
        tables=(tokens.table_name(database),),
        temporary=temporary,
        or_replace=or_replace,
        conditional=conditional,
    )


def _alter(tokens: Tokens, database: str) -> Statement | None:
    tokens.accept("ONLINE")
    ignores = tokens.accept("IGNORE")
    what = tokens.accept_any("TABLE", "SEQUENCE", "DATABASE", "SCHEMA")
    if not what:
        return None
    conditional = tokens.accept("IF", "EXISTS")
    if what in ("DATABASE", "SCHEMA"):
        # ALTER DATABASE CHARACTER SET …: the name is optional.
        words = ("DEFAULT", "CHARACTER", "CHARSET", "COLLATE", "COMMENT", "UPGRADE")
        named = database if any(tokens.sees(word) for word in words) else tokens.stored_name()
        return Statement(verb=Verb.ALTER_DATABASE, tokens=tokens, database=named)
    table = tokens.table_name(database)
    if tokens.accept("WAIT"):
        tokens.number()
    tokens.accept("NOWAIT")
    verb = Verb.ALTER_TABLE if what == "TABLE" else Verb.ALTER_SEQUENCE
    return Statement(verb=verb, tokens=tokens, tables=(table,), conditional=conditional, ignores=ignores)


def _drop(tokens: Tokens, database: str) -> Statement | None:
    temporary = tokens.accept("TEMPORARY")
    what = tokens.accept_any("TABLE", "TABLES", "SEQUENCE", "DATABASE", "SCHEMA")
    if not what:
        return None
    conditional = tokens.accept("IF", "EXISTS")
    if what in ("DATABASE", "SCHEMA"):
        return Statement(verb=Verb.DROP_DATABASE, tokens=tokens, database=tokens.stored_name(), conditional=conditional)
    tables = [tokens.table_name(database)]
    while tokens.accept(","):
        tables.append(tokens.table_name(database))
    return Statement(
        verb=Verb.DROP_TABLES, tokens=tokens, tables=tuple(tables), temporary=temporary, conditional=conditional
    )


def _repair(tokens: Tokens, database: str) -> Statement | None:
    """Parse REPAIR TABLE, which removes damaged rows."""
    tokens.accept_any("NO_WRITE_TO_BINLOG", "LOCAL")
    if not tokens.accept_any("TABLE", "TABLES"):
        return None
    tables = [tokens.table_name(database)]
    while tokens.accept(","):
        tables.append(tokens.table_name(database))
    return Statement(verb=Verb.REPAIR_TABLES, tokens=tokens, tables=tuple(tables))


def _renamed(tokens: Tokens, database: str) -> TableNames:
    tokens.accept("IF", "EXISTS")
    tables: list[tuple[str, str]] = []
    while not tables or tokens.accept(","):
        tables.append(tokens.table_name(database))
        if tokens.accept("WAIT"):
            tokens.number()
        tokens.accept("NOWAIT")
        tokens.expect("TO")
        tables.append(tokens.table_name(database))
    return tuple(tables)


def pairs(tables: Sequence[tuple[str, str]]) -> list[tuple[tuple[str, str], tuple[str, str]]]:
    """Return the (old, new) names of RENAME."""
    return list(zip(tables[::2], tables[1::2], strict=True))


# `TemporaryTables` follows the statements of a binlog in order and decides whether a name in a statement is a
# temporary table. The server marks each statement that uses one (THREAD_SPECIFIC); an unmarked statement uses none.
# Tables that were created before the first statement are unknown, and so are tables of sessions in ROW format, which
# are not logged.


MAX_NAMES: Final = 1 << 16
"""Maximum number of names, some 10 MB. Statements on further temporary tables count as changes of real tables."""


def uses_temporary(statement: Logged) -> bool:
    """Return True if the server marked the statement as using temporary tables of its session."""
    return bool(statement.header.flags & HeaderFlag.THREAD_SPECIFIC)


class TemporaryTables:
    """Names of the temporary tables of all sessions."""

    def __init__(self) -> None:
        self._names: set[tuple[int, int, str, str]] = set()

    def copy(self) -> TemporaryTables:
        made = TemporaryTables()
        made._names.update(self._names)
        return made

    def follow(self, statement: Logged, server: ServerRules = ANY_SERVER) -> None:
        """Apply the tables that the statement creates, renames or drops."""
        if not uses_temporary(statement) or not may_define(statement.query):
            return
        try:
            session = session_of(statement, server)
            read = read_statement(text_of(statement), session)
        except SchemaError:
            return
        if read is not None:
            self._apply(statement, read)

    def means(self, statement: Logged, name: TableName) -> bool:
        """Return True if `name` in this statement is a temporary table."""
        return uses_temporary(statement) and _key(statement, name) in self._names

    def _apply(self, statement: Logged, read: Statement) -> None:
        keys = [_key(statement, name) for name in read.tables]
        if read.verb is Verb.CREATE_TABLE and read.temporary and len(self._names) < MAX_NAMES:
            self._names.update(keys)
        elif read.verb is Verb.DROP_TABLES:
            self._names.difference_update(keys)
        elif read.verb is Verb.RENAME_TABLES:
            for old, new in pairs(read.tables):
                if _key(statement, old) in self._names:
                    self._names.discard(_key(statement, old))
                    self._names.add(_key(statement, new))


def _key(statement: Logged, name: TableName) -> tuple[int, int, str, str]:
    return statement.header.server_id, statement.thread_id, name[0], name[1]


# The file may be a pipe, mariadb-dump's output of any size, or statements written by hand. A statement is yielded as
# text, without its delimiter. INSERTs are skipped without copying them. `DELIMITER` is obeyed as in the command line
# client, so that the body of a routine is not split into statements. Text is UTF-8; other bytes become U+FFFD.


# A definition has at most 4096 columns, each with a comment of up to 1024 characters, and 64 KB of labels in total.
MAX_STATEMENT_BYTES: Final = 64 << 20

_BLANK = rb"(?>(?:\s|--[^\n]*+\n|\#[^\n]*+\n|/\*(?!M?!).*?\*/)*)"

_DDL = re.compile(_BLANK + rb"(?=CREATE|ALTER|DROP|RENAME|USE|SET|/\*M?!)", re.IGNORECASE | re.DOTALL)

_DELIMITER = re.compile(_BLANK + rb"DELIMITER[ \t]+(\S+)[^\n]*+", re.IGNORECASE | re.DOTALL)

# Atomic groups instead of possessive repeats of groups, which Python before 3.11.5 matches wrongly.
_BODY: Final = rb"""(?>(?:
    '[^'\\]*+(?>(?:(?:\\.|'')[^'\\]*+)*)' | "[^"\\]*+(?>(?:(?:\\.|"")[^"\\]*+)*)" | `[^`]*+`
  | /\*.*?\*/ | --(?=\s)[^\n]*+ | \#[^\n]*+
  | [^'"`/\#\-%b]++ | (?!%b).
)*)"""


def statements_of(path: str | Path) -> Iterator[str]:
    """Yield the statements of a file that may be DDL, in order.

    Raises:
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as file:
        if file.seekable():
            yield from _mapped(file)
        else:
            with tempfile.TemporaryFile() as copy:
                shutil.copyfileobj(file, copy)
                copy.flush()
                yield from _mapped(copy)


def _mapped(file: IO[bytes]) -> Iterator[str]:
    if file.seek(0, 2):
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            yield from _statements(data)


def _statements(data: mmap.mmap) -> Iterator[str]:
    at, delimiter = 0, b";"
    body = _body(delimiter)
    while at < len(data):
        command = _DELIMITER.match(data, at)
        if command is not None:
            delimiter, at = command[1], command.end()
            body = _body(delimiter)
            continue
        found = body.match(data, at)
        end = found.end() if found else at
        ddl = _DDL.match(data, at, end)
        if ddl is not None and end - ddl.end() <= MAX_STATEMENT_BYTES:
            yield data[ddl.end() : end].decode("utf-8", "replace")
        at = end + len(delimiter)


def _body(delimiter: bytes) -> re.Pattern[bytes]:
    """Return the expression that matches a statement up to its delimiter, or to the end."""
    return re.compile(_BODY % (re.escape(delimiter[:1]), re.escape(delimiter)), re.VERBOSE | re.DOTALL)
