"""Parser of a column's type in CREATE TABLE: from the text after the column's name to a `Column`, resolved as in
MariaDB.

Synonyms become the name that information_schema shows (INT4 is int, LONG VARCHAR is mediumtext, SERIAL is bigint
unsigned). Omitted lengths become the server's defaults. sql_mode changes the meaning or the name of some types;
`oracle_schema.DATE` selects the meaning explicitly (sql/sql_schema.cc, sql/sql_yacc.yy of 10.5 to 11.8). A type that is
not in the registry is a SchemaError.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.rows.types.entry import Parentheses
from replica.rows.types.registry import NAMES, WORDS
from replica.schema.definition.column import Column

if TYPE_CHECKING:
    from replica.schema.definition.session import StatementContext
    from replica.schema.text.cursor import Tokens

REAL_AS_FLOAT: Final = 1
ORACLE: Final = 512
MAXDB: Final = 4096

_STANDS_FOR: Final[dict[str, Column]] = {
    "BOOL": Column(name="", data_type="tinyint", digits=(1,)),
    "BOOLEAN": Column(name="", data_type="tinyint", digits=(1,)),
    "SERIAL": Column(name="", data_type="bigint", digits=(20,), unsigned=True, nullable=False),
    "JSON": Column(name="", data_type="longtext", charset="utf8mb4", collation="utf8mb4_bin", json=True),
}
_OF_ORACLE: Final = {"VARCHAR2": "varchar", "NUMBER": "decimal", "RAW": "varbinary", "CLOB": "longtext"}
"""Names of types in sql_mode=ORACLE only."""
_OWN: Final = "mariadb_schema"
_SCHEMAS: Final[dict[str, tuple[str, str] | None]] = {
    _OWN: None,
    "oracle_schema": ("date", "datetime"),
    "maxdb_schema": ("timestamp", "datetime"),
}
"""The type that a schema of types replaces, and its replacement."""
_FIRST_DOUBLE: Final = 25  # FLOAT(p) with p of 25 and more digits is a double


def read_type(tokens: Tokens, name: str, session: StatementContext) -> Column:
    """Parse the type's name with its parentheses; attributes such as UNSIGNED or CHARACTER SET follow and are not
    parsed.
    """
    sql_mode = session.sql_mode
    schema = _schema_of(tokens, name, sql_mode)
    token = tokens.take()
    word = token.upper
    column = _special(tokens, name, word)
    if column is not None:
        return column
    if word == "REAL":
        data_type = "float" if sql_mode & REAL_AS_FLOAT else "double"
    elif word in _OF_ORACLE and sql_mode & ORACLE:
        data_type = "double" if word == "NUMBER" and not tokens.sees("(") else _OF_ORACLE[word]
    elif word == "BLOB" and sql_mode & ORACLE and not tokens.sees("("):
        data_type = "longblob"
    elif word in WORDS:
        data_type = WORDS[word].name
    else:
        raise SchemaError(f"Column {name} has the type {token.text}, which is not known.")
    if word in ("DOUBLE", "REAL"):
        tokens.accept("PRECISION")
    if schema is not None and data_type == schema[0]:
        data_type = schema[1]
    if word in ("CHAR", "CHARACTER") and tokens.accept("VARYING"):
        data_type = "varchar"
    if NAMES[data_type].parentheses is Parentheses.LABELS:
        return Column(name=name, data_type=data_type, labels=_labels(tokens, name, session))
    return _with_digits(Column(name=name, data_type=data_type), tokens.numbers())


def _schema_of(tokens: Tokens, name: str, sql_mode: int) -> tuple[str, str] | None:
    """Parse the schema before a type, or return that of the session."""
    if not tokens.sees(".", ahead=1):
        return _SCHEMAS["oracle_schema" if sql_mode & ORACLE else "maxdb_schema" if sql_mode & MAXDB else _OWN]
    schema = tokens.name()
    tokens.expect(".")
    if schema.lower() not in _SCHEMAS:
        raise SchemaError(f"Column {name} has a type of {schema}, which is not known.")
    return _SCHEMAS[schema.lower()]


def _special(tokens: Tokens, name: str, word: str) -> Column | None:
    """Parse types of several words, and synonyms of a type with attributes."""
    if word in _STANDS_FOR:
        return replace(_STANDS_FOR[word], name=name)
    national = (word == "NATIONAL" and tokens.accept_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER")) or ""
    if national or word in ("NCHAR", "NVARCHAR"):
        varying = "VARCHAR" in (national or word) or bool(tokens.accept_any("VARYING", "VARCHAR", "VARCHARACTER"))
        column = Column(name=name, data_type="varchar" if varying else "char", charset="utf8mb3")
        return _with_digits(column, tokens.numbers())
    if word != "LONG":
        return None
    if tokens.accept("VARBINARY"):
        return Column(name=name, data_type="mediumblob")
    if not tokens.accept_any("VARCHAR", "VARCHARACTER") and tokens.accept_any("CHAR", "CHARACTER"):
        tokens.expect("VARYING")
    return Column(name=name, data_type="mediumtext")


def _with_digits(column: Column, digits: tuple[int, ...]) -> Column:
    """Return the column with the numbers in parentheses, or with the server's defaults."""
    match NAMES[column.data_type].parentheses:
        case Parentheses.PRECISION:
            precision, scale = (*digits, *(10, 0)[len(digits) :])
            column = replace(column, digits=(precision or 10, scale))
        case Parentheses.FLOAT if len(digits) == 1:
            column = replace(column, data_type="float" if digits[0] < _FIRST_DOUBLE else "double")
        case Parentheses.YEAR:
            column = replace(column, digits=digits if digits == (2,) else (4,))
        case Parentheses.LENGTH if not digits:
            raise SchemaError(f"Column {column.name} is {column.data_type} without a length.")
        case Parentheses.LENGTH | Parentheses.LENGTH_OR_1:
            column = replace(column, length=digits[0] if digits else 1)
        case Parentheses.SIZE if digits:
            column = replace(column, wanted=digits[0] or None)
        case _:
            column = replace(column, digits=digits)
    return column


def _labels(tokens: Tokens, name: str, session: StatementContext) -> tuple[str, ...]:
    tokens.expect("(")
    labels: list[str] = []
    while not labels or tokens.accept(","):
        token = tokens.peek()
        if token is not None and token.upper == "N":
            tokens.take()
        label = tokens.string()
        if "\N{REPLACEMENT CHARACTER}" in label:
            raise SchemaError(f"A label of column {name} is not valid in the character set of the client.")
        if not session.takes(label):
            raise SchemaError(f"A label of column {name} has characters that {session.connection} lacks.")
        labels.append(label)
    tokens.expect(")")
    return tuple(labels)
