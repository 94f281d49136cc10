"""Column of a table while DDL is followed: every attribute that the server keeps and a later ALTER may need.

`Column.schema` returns the `ColumnSchema`; `with_charset` and `converted` return the column after its character set was
resolved or converted. The character set `binary` makes CHAR a BINARY. TEXT(n) becomes the smallest type that holds n
characters. The length of text is kept in characters, because CONVERT TO CHARACTER SET changes its bytes. A label that
the server would not store as written is a SchemaError.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from replica.errors import SchemaError
from replica.protocol.charset import charset_named
from replica.rows.types.entry import Parentheses
from replica.rows.types.kinds import Kind
from replica.rows.types.registry import NAMES, TYPE_OF_NAME
from replica.schema.table import ColumnSchema

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
    """Definition of a column, with every attribute that a later ALTER may need. `length`: characters of text, bytes of
    binary.
    """

    name: str
    data_type: str = ""
    length: int | None = None  # CHAR, VARCHAR, BINARY, VARBINARY, BIT, VECTOR
    digits: tuple[int, ...] = ()  # the numbers in parentheses after a number type
    unsigned: bool = False
    zerofill: bool = False
    charset: str | None = None  # None: not text, or unknown
    collation: str | None = None
    guessed_width: bool = False  # 'utf8' was written: 3 or 4 bytes a character, as old_mode says
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
    """Return the column after CONVERT TO CHARACTER SET: a TEXT becomes a larger type if its characters would no longer
    fit.
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
    """Refuse labels with characters that the column's character set lacks: the server's replacement for them is
    unknown.
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
    """Return the smallest type for TEXT(n), and for a VARCHAR too long for its type (possible without strict mode)."""
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
