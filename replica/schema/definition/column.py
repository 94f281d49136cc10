"""Column definition for replaying DDL: every attribute that the server keeps and a later ALTER may need.

`Column.schema` returns the `ColumnSchema`; `with_charset` and `converted` return the column after its character set was
resolved or converted. The character set `binary` makes CHAR a BINARY. TEXT(n) becomes the smallest type that holds n
characters. The length of text is kept in characters, because CONVERT TO CHARACTER SET changes its length in bytes. A
label that the server would not store as written is a SchemaError.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from replica.errors import SchemaError
from replica.protocol.charset import charset_named
from replica.rows.types.entry import Parentheses
from replica.rows.types.kinds import Kind
from replica.rows.types.types import KEYWORDS, NAMES, TYPE_OF_NAME
from replica.schema.table import ColumnSchema

if TYPE_CHECKING:
    from replica.schema.definition.session import StatementContext
    from replica.schema.text.cursor import Tokens

_SIZES: Final = {name.name: name.octets for name in NAMES.values() if name.octets is not None}
AS_BYTES: Final = {name.name: name.as_bytes for name in NAMES.values() if name.as_bytes}
"""Types of text, with their replacement under the character set `binary`."""
TEXTS: Final = {name: octets for name, octets in _SIZES.items() if name in AS_BYTES}
BLOBS: Final = {name: octets for name, octets in _SIZES.items() if name not in AS_BYTES}
GEOMETRIES: Final = tuple(name for name, entry in TYPE_OF_NAME.items() if entry.kind == Kind.GEOMETRY)
TEXTUAL: Final = (*AS_BYTES, *(name.name for name in NAMES.values() if name.parentheses is Parentheses.LABELS))
_MAX_VARCHAR_BYTES: Final = 65_535
_WIDTHS: Final = {name.name: name.width for name in NAMES.values() if name.width is not None}
_FRACTIONS: Final = frozenset(name.name for name in NAMES.values() if name.parentheses is Parentheses.FRACTION)
_ESCAPED: Final = str.maketrans({"\0": "\\0", "\n": "\\n", "\r": "\\r", "\\": "\\\\", "'": "''"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Definition of a column, with every attribute that a later ALTER may need.

    `length` counts characters of text, and bytes of binary values.
    """

    name: str
    data_type: str = ""
    length: int | None = None  # CHAR, VARCHAR, BINARY, VARBINARY, BIT, VECTOR
    digits: tuple[int, ...] = ()  # the numbers in parentheses after a number type
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None  # None: not text, or unknown
    collation: str | None = None
    guessed_width: bool = False  # declared as 'utf8': 3 or 4 bytes a character, by old_mode
    labels: tuple[str, ...] | None = None
    nullable: bool | None = None  # None: not declared
    compressed: bool = False
    json: bool = False  # declared as JSON, which MariaDB keeps as longtext
    period: Literal["start", "end"] | None = None
    computed: bool = False  # a generated column
    comment: str = ""
    wanted: int | None = None  # TEXT(n): the requested characters, until a size is chosen

    @property
    def octets(self) -> int | None:
        """Longest value in bytes; None if it does not apply, or the bytes of a character are unknown."""
        name = NAMES.get(self.data_type)
        if name is None:
            return None
        if name.octets is not None or self.length is None:
            return name.octets
        if name.unit is not None:
            return name.unit * self.length
        if name.as_bytes:
            return None if self.charset is None or self.guessed_width else self.length * width_of(self.charset)
        return None

    def schema(self, *, key: bool) -> ColumnSchema:
        """Return the column as information_schema would describe it."""
        decimal = self.digits if self.data_type == "decimal" else (None, None)
        return ColumnSchema(
            name=self.name,
            data_type=self.data_type,
            column_type=self._declaration(),
            nullable=self.nullable is not False and not key and self.period is None,
            unsigned=self.unsigned,
            charset=self.charset,
            collation=self.collation,
            labels=self.labels,
            octets=self.octets,
            precision=self.length if self.data_type == "bit" else decimal[0],
            scale=decimal[1],
            fsp=(self.digits or (0,))[0] if self.data_type in _FRACTIONS else None,
            key=key,
            period=self.period,
            comment=self.comment,
            computed=self.computed,
        )

    def _declaration(self) -> str:
        """Return COLUMN_TYPE in the server's spelling."""
        text = self.data_type
        if self.labels is not None:
            text += f"({','.join(map(_quoted, self.labels))})"
        elif self.length is not None:
            text += f"({self.length})"
        elif self.digits and any(self.digits):
            text += f"({','.join(map(str, self.digits))})"
        text += " unsigned" * self.unsigned + " zerofill" * self.zerofill
        return text + " /*M!100301 COMPRESSED*/" * self.compressed


def with_charset(column: Column, charset: str | None, collation: str | None) -> Column:
    """Return the column with a character set.

    The character set `binary` makes CHAR a BINARY; TEXT(n) becomes the smallest sufficient type.
    """
    if column.data_type in TEXTUAL:
        data_type = column.data_type
        if charset == "binary" and data_type in AS_BYTES:
            data_type, charset, collation = AS_BYTES[data_type], None, None
        column = replace(column, data_type=data_type, charset=charset, collation=collation)
    if column.labels is not None:
        _check_labels(column)
        if charset != "binary":
            column = replace(column, labels=tuple(label.rstrip(" ") for label in column.labels))
    return _sized(column)


def converted(column: Column, charset: str, collation: str | None) -> Column:
    """Return the column after CONVERT TO CHARACTER SET.

    A TEXT becomes a larger type if its characters would no longer fit.
    """
    if column.data_type not in TEXTUAL or column.charset == "binary":
        return column
    if column.labels is not None and any(_bytes(x, column.charset) != _bytes(x, charset) for x in column.labels):
        # Servers misinterpret the old bytes of a label as bytes of the new character set.
        raise SchemaError(f"Column {column.name} has labels that servers damage when they convert them to {charset}.")
    wanted = None
    if column.data_type in TEXTS and charset != "binary":
        if column.charset is None:
            raise SchemaError(f"Column {column.name} is converted from a character set that is not known.")
        wanted = TEXTS[column.data_type] // width_of(column.charset)
    return with_charset(replace(column, wanted=wanted, guessed_width=False), charset, collation)


def _check_labels(column: Column) -> None:
    """Refuse labels with characters that the column's character set lacks.

    The characters with which the server replaces them are unknown.
    """
    if any(_bytes(label, column.charset) is None for label in column.labels or ()):
        raise SchemaError(f"Column {column.name} has a label with characters that its character set may not have.")


def _bytes(label: str, charset: str | None) -> bytes | None:
    """Encode a label in a character set; None if the character set may lack one of its characters."""
    codec = "ascii" if charset in (None, "binary") else charset_named(charset).codec
    try:
        return label.encode(codec)
    except UnicodeEncodeError:
        return None


def _sized(column: Column) -> Column:
    """Return the smallest type for TEXT(n), or for a VARCHAR that is too long for its type (without strict mode)."""
    width = width_of(column.charset)
    names = list(TEXTS if column.data_type in TEXTS or column.data_type == "varchar" else BLOBS)
    wanted = column.wanted
    if column.data_type in ("varchar", "varbinary") and (column.length or 0) * width > _MAX_VARCHAR_BYTES:
        wanted = column.length
    if wanted is None:
        return column
    data_type = next((name for name in names if wanted * width <= _SIZES[name]), names[-1])
    return replace(column, data_type=data_type, length=None, wanted=None)


def width_of(charset: str | None) -> int:
    """Return the maximal bytes of a character; 1 for columns without text."""
    return 1 if charset is None else 1 if charset == "binary" else charset_named(charset).max_bytes


def with_default_width(column: Column) -> Column:
    """Return an integer column with the server's default display width, if its width was omitted."""
    if column.data_type in _WIDTHS and not column.digits:
        return replace(column, digits=(_WIDTHS[column.data_type][column.unsigned],))
    return column


def _quoted(label: str) -> str:
    return f"'{label.translate(_ESCAPED)}'"


# `read_type` returns synonyms by the name that information_schema shows (INT4 is int, LONG VARCHAR is mediumtext,
# SERIAL is bigint unsigned). Omitted lengths become the server's defaults. sql_mode changes the meaning or the name of
# some types; a prefix such as in `oracle_schema.DATE` selects the meaning explicitly (sql/sql_schema.cc,
# sql/sql_yacc.yy of 10.5 to 11.8). A type that is not in the registry is a SchemaError.


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
"""Type names that exist only in sql_mode=ORACLE, with MariaDB's name for each."""
_OWN: Final = "mariadb_schema"
_SCHEMAS: Final[dict[str, tuple[str, str] | None]] = {
    _OWN: None,
    "oracle_schema": ("date", "datetime"),
    "maxdb_schema": ("timestamp", "datetime"),
}
"""Prefix of a type -> (type that the prefix redefines, resulting type). None: the prefix redefines nothing."""
_FIRST_DOUBLE: Final = 25  # FLOAT(p) with p of 25 and more digits is a double


def read_type(tokens: Tokens, name: str, session: StatementContext) -> Column:
    """Parse the type's name with its parentheses.

    Attributes after the type, such as UNSIGNED or CHARACTER SET, are not parsed.
    """
    sql_mode = session.sql_mode
    schema = _schema_of(tokens, name, sql_mode)
    token = tokens.take()
    keyword = token.upper
    column = _special(tokens, name, keyword)
    if column is not None:
        return column
    if keyword == "REAL":
        data_type = "float" if sql_mode & REAL_AS_FLOAT else "double"
    elif keyword in _OF_ORACLE and sql_mode & ORACLE:
        data_type = "double" if keyword == "NUMBER" and not tokens.sees("(") else _OF_ORACLE[keyword]
    elif keyword == "BLOB" and sql_mode & ORACLE and not tokens.sees("("):
        data_type = "longblob"
    elif keyword in KEYWORDS:
        data_type = KEYWORDS[keyword].name
    else:
        raise SchemaError(f"Column {name} has the type {token.text}, which is not known.")
    if keyword in ("DOUBLE", "REAL"):
        tokens.accept("PRECISION")
    if schema is not None and data_type == schema[0]:
        data_type = schema[1]
    if keyword in ("CHAR", "CHARACTER") and tokens.accept("VARYING"):
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


def _special(tokens: Tokens, name: str, keyword: str) -> Column | None:
    """Parse types of several words, and synonyms of a type with attributes."""
    if keyword in _STANDS_FOR:
        return replace(_STANDS_FOR[keyword], name=name)
    national = (keyword == "NATIONAL" and tokens.accept_any("CHAR", "CHARACTER", "VARCHAR", "VARCHARACTER")) or ""
    if national or keyword in ("NCHAR", "NVARCHAR"):
        varying = "VARCHAR" in (national or keyword) or bool(tokens.accept_any("VARYING", "VARCHAR", "VARCHARACTER"))
        column = Column(name=name, data_type="varchar" if varying else "char", charset="utf8mb3")
        return _with_digits(column, tokens.numbers())
    if keyword != "LONG":
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
        if not session.can_encode(label):
            raise SchemaError(f"A label of column {name} has characters that {session.connection} lacks.")
        labels.append(label)
    tokens.expect(")")
    return tuple(labels)
