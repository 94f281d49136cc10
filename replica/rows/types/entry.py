"""Entries of the type registry: one per SQL type, and one per kind of value.

A type is a declaration in SQL (`TypeEntry`). A kind is one wire format with one output form (`KindEntry`): kernels
dispatch on its number. A type has one kind or a few: the sign, digits and character set of the column and the reader's
policy select one.

A value has two wire formats. `binlog` is its format in a row image, which all decoders read. `result_set` is its format
in a row of a prepared SELECT. Such a row is converted to a row image before a decoder reads it, so `result_set` is a
field of types only, and has no readers. Neither format has a default: each family must declare both. The output forms
(Arrow, Spark, VARIANT, JSON, SQL) are separate fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable

    from replica.protocol.charset import Charset
    from replica.protocol.constants import ColumnType
    from replica.protocol.rows.table_map import ColumnDef
    from replica.rows.types.kinds import KeyForm, Kind, Transcoding


class Variant(Enum):
    """Form of a value in Spark's VARIANT, as docs/types.md names it."""

    INTEGER = "integer"
    UNSIGNED = "integer, decimal beyond BIGINT"
    FLOAT = "float"
    DOUBLE = "double"
    DECIMAL = "decimal"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TIMESTAMP_NTZ = "timestamp_ntz"
    TEXT = "text"
    BINARY = "binary"
    FLOATS = "array of float"


class Json(Enum):
    """Form of a value in the lines of `dump --json`, as docs/types.md names it."""

    NUMBER = "number"
    LARGE = "number, text beyond ±2^53"
    YEAR = "text, four digits"
    TEXT = "text"
    UTC = "text, in UTC"
    HEX = '`{"hex":"00FF"}`'
    NUMBERS = "array of numbers"


class Sql(Enum):
    """The ways in which `dump --sql` writes a value."""

    NUMBER = auto()
    QUOTED = auto()
    CHARACTERS = auto()  # quoted; its collation can make different texts equal
    HEX = auto()


class KernelFacts(Enum):
    """Facts that a kernel gets about a column besides kind and width (A, B and AUX in rows/types/kinds.py)."""

    NOTHING = auto()
    DIGITS = auto()  # of a DECIMAL: its digits before and after the point
    DECIMALS = auto()  # of a FLOAT or DOUBLE: the digits after the point that it is rounded to
    CALENDAR = auto()  # whether an invalid date is an error
    FRACTION = auto()  # the bytes of a second's fraction, and CALENDAR
    FRACTION_TEXT = auto()  # the bytes and the digits of a second's fraction
    LENGTH = auto()  # the padded length of a value
    LABELS = auto()
    TEXT = auto()  # whether invalid text is an error
    CHARSET = auto()  # TEXT, and the conversion table


class Widens(Enum):
    """Rules by which a column may be output as a wider type that holds all of its values (rows/tables/plan.py)."""

    NEVER = auto()
    SIGNED = auto()  # into a wider integer, with sign extension
    UNSIGNED = auto()  # into a wider integer
    DIGITS = auto()  # into a DECIMAL of more digits before the point


class ColumnFacts(Protocol):
    """Attributes of a column that a Python reader gets; a `ColumnPlan` has them."""

    @property
    def kind(self) -> Kind: ...
    @property
    def precision(self) -> int: ...
    @property
    def scale(self) -> int: ...
    @property
    def decimals(self) -> int | None: ...
    @property
    def fsp(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def labels(self) -> tuple[str, ...]: ...
    @property
    def charset(self) -> Charset | None: ...


class WireValue(NamedTuple):
    """The values of one kind in one wire format: the Python reader, and the facts that kernels get.

    `read` takes exactly the bytes of one value. It returns None for an invalid date and for an empty GEOMETRY.
    """

    read: Callable[[bytes, ColumnFacts], Any]
    facts: KernelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class KindEntry:
    """Registry entry of one kind.

    If precision and scale determine the type, `arrow` is a function of them, and `spark` contains {p} and {s}.
    """

    kind: Kind
    binlog: WireValue
    arrow: pa.DataType | Callable[[int, int], pa.DataType]
    spark: str
    variant: Variant
    json: Json
    sql: Sql
    widens: Widens = Widens.NEVER
    as_text: Kind | None = None
    """The kind that replaces this one under invalidDates=text. Only kinds of dates have one."""
    as_stored: Kind | None = None
    """The kind that replaces this one under geometry=binary."""
    assemble: Callable[..., pa.Array] | None = None
    """Function that makes an array of the bytes that kernels wrote: (type, rows, validity, offsets, data).

    None if Arrow can read those buffers directly.
    """


def printed(kind: Kind, binlog: WireValue, sql: Sql = Sql.QUOTED, json: Json = Json.TEXT) -> KindEntry:
    """Make the entry of a kind that is output as text, in the form that SELECT prints."""
    return KindEntry(
        kind=kind, binlog=binlog, arrow=pa.string(), spark="STRING", variant=Variant.TEXT, json=json, sql=sql
    )


class Parentheses(Enum):
    """Meaning of the numbers in parentheses after a type name in CREATE TABLE."""

    DIGITS = auto()  # kept unchanged
    PRECISION = auto()  # (10,0) if they are omitted
    FLOAT = auto()  # many digits make a DOUBLE
    YEAR = auto()
    FRACTION = auto()  # fractional digits of a second
    LENGTH = auto()  # required
    LENGTH_OR_1 = auto()
    SIZE = auto()  # selects the smallest type of the family that holds that many characters
    LABELS = auto()


@dataclass(frozen=True, slots=True)
class SqlName:
    """One value of DATA_TYPE in information_schema.COLUMNS, and its spelling in CREATE TABLE."""

    name: str
    keywords: tuple[str, ...]
    """The spellings of the name in SQL, in capital letters."""
    parentheses: Parentheses = Parentheses.DIGITS
    octets: int | None = None
    """Bytes of the longest value, if the name alone determines them."""
    unit: int | None = None
    """Bytes per unit of the length in parentheses, if the unit is not a character."""
    logged: int | None = None
    """Bytes of the longest value in the table map, if the catalog has no length."""
    width: tuple[int, int] | None = None
    """Display width of an integer if it is omitted: signed, unsigned."""
    as_bytes: str = ""
    """The type that replaces this one under the character set `binary`."""

    @classmethod
    def of(cls, name: str, parentheses: Parentheses = Parentheses.DIGITS, *synonyms: str, **more: Any) -> SqlName:
        """Make a name whose spellings are the name itself and synonyms."""
        return cls(name, (name.upper(), *synonyms), parentheses, **more)


class WireType(NamedTuple):
    """Wire codes of a type, and the bytes of a value as docs/types.md describes them."""

    codes: tuple[ColumnType, ...]
    bytes: str


class ResultType(NamedTuple):
    """Format of a type in the result of a prepared SELECT.

    Attributes:
        expression: The expression in the select list: {c} stands for the column, {n} for the bytes of its values.
        codes: The types that the server may answer with.
        image: The table map type of the values after conversion.
        transcoding: The conversion to a row image.
    """

    expression: str
    codes: tuple[ColumnType, ...]
    image: ColumnType
    transcoding: Transcoding

    @classmethod
    def plain(cls, code: ColumnType, transcoding: Transcoding, image: ColumnType | None = None) -> ResultType:
        """Make the format of a type whose select expression is the column itself; the server answers with one code."""
        return cls("{c}", (code,), code if image is None else image, transcoding)


class Wide(NamedTuple):
    """Kind of columns with more digits (DECIMAL) or bits (BIT) than `beyond`, and its texts for docs/types.md."""

    beyond: int
    kind: Kind
    declared: str
    bytes: str
    remarks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeEntry:
    """Registry entry of one type.

    `written` writes the type as in CREATE TABLE, with the attributes that the stream has. None means that `declared` is
    correct.
    """

    declared: str
    names: tuple[SqlName, ...]
    binlog: WireType
    result_set: ResultType | None
    """None for types that only a binlog shows: MySQL's JSON, and the stored form of COMPRESSED columns."""
    key: KeyForm | None
    """The conversion of a value to key bytes; None if the type cannot be a part of a snapshot key."""
    kind: Kind
    written: Callable[[ColumnDef, ColumnFacts], str] | None = None
    remarks: str = ""
    unsigned: Kind | None = None
    wide: Wide | None = None
