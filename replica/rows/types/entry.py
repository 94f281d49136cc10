"""Say what the registry holds of a type: its own entry, and one for each kind that its values are read as.

A type is what someone declares in SQL (`TypeEntry`). A kind is one way in which a value lies on the wire together with
what becomes of it (`KindEntry`): kernels dispatch on its number. A type has one kind, or a few among which its sign,
its digits, its character set and the reader's policy choose.

A value travels in two forms. `binlog` is that of a row image, which all decoders read. `result_set` is that of a row of
a prepared SELECT: such a row becomes a row image before anything reads it, so it has no readers and belongs to types
alone. Neither has a default: each family has to say both. What a value becomes (Arrow, Spark, VARIANT, JSON, SQL)
stands beside the forms, not in them.
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
    from replica.protocol.rows.column_def import ColumnDef
    from replica.rows.types.kinds import KeyForm, Kind, Transcoding


class Variant(Enum):
    """The form of a value in Spark's VARIANT, in the words of docs/types.md."""

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
    """The form of a value in the lines of `dump --json`, in the words of docs/types.md."""

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
    CHARACTERS = auto()  # quoted, and equal by a collation to text that is not the same
    HEX = auto()


class Told(Enum):
    """The facts that a kernel is told of a column besides its kind and its width (rows/types/plan_record.py: A, B and
    AUX).
    """

    NOTHING = auto()
    DIGITS = auto()  # of a DECIMAL: where they stand
    DECIMALS = auto()  # of a FLOAT or DOUBLE: the digits after the point that it is rounded to
    CALENDAR = auto()  # whether a date that no calendar has is an error
    FRACTION = auto()  # the bytes of a second's fraction, and as CALENDAR
    FRACTION_TEXT = auto()  # the bytes and the digits of a second's fraction
    LENGTH = auto()  # what a value is padded to
    LABELS = auto()
    TEXT = auto()  # whether bytes that are no text are an error
    CHARSET = auto()  # the same, and how to convert


class Widens(Enum):
    """The rules by which a column may be put out as a type that holds every value of its own
    (rows/tables/widening.py).
    """

    NEVER = auto()
    SIGNED = auto()  # into a wider integer, the sign kept
    UNSIGNED = auto()  # into a wider integer
    DIGITS = auto()  # into a DECIMAL of more digits before the point


class ColumnFacts(Protocol):
    """The facts that a plain reader is told of a column: a `ColumnPlan` has them all."""

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
    """The way in which the values of one kind travel in one form: the plain reader, and what the kernels are told.

    `read` is given exactly the bytes of one value. None is a date that no calendar has, or the empty GEOMETRY.
    """

    read: Callable[[bytes, ColumnFacts], Any]
    told: Told


@dataclass(frozen=True, slots=True, kw_only=True)
class KindEntry:
    """One kind. Where precision and scale make the type, `arrow` is a function of them, and `spark` has {p} and {s}."""

    kind: Kind
    binlog: WireValue
    arrow: pa.DataType | Callable[[int, int], pa.DataType]
    spark: str
    variant: Variant
    json: Json
    sql: Sql
    widens: Widens = Widens.NEVER
    as_text: Kind | None = None
    """The kind that is read instead under invalidDates=text. Only kinds of dates have one."""
    as_stored: Kind | None = None
    """The kind that is read instead under geometry=binary."""
    assemble: Callable[..., pa.Array] | None = None
    """Makes an array of what kernels wrote as bytes: (type, rows, validity, offsets, data). None: Arrow reads it so."""


def printed(kind: Kind, binlog: WireValue, sql: Sql = Sql.QUOTED, json: Json = Json.TEXT) -> KindEntry:
    """Make the entry of a kind that is put out as text, as SELECT prints it."""
    return KindEntry(
        kind=kind, binlog=binlog, arrow=pa.string(), spark="STRING", variant=Variant.TEXT, json=json, sql=sql
    )


class Parentheses(Enum):
    """The meaning of the numbers in parentheses behind a name in CREATE TABLE."""

    DIGITS = auto()  # kept as they are
    PRECISION = auto()  # (10,0) where they are left out
    FLOAT = auto()  # many digits make a DOUBLE
    YEAR = auto()
    FRACTION = auto()  # digits of a second's fraction
    LENGTH = auto()  # must be there
    LENGTH_OR_1 = auto()
    SIZE = auto()  # the smallest type of the family that holds so many characters
    LABELS = auto()


@dataclass(frozen=True, slots=True)
class SqlName:
    """One name that information_schema.COLUMNS.DATA_TYPE can show, and how CREATE TABLE asks for it."""

    name: str
    words: tuple[str, ...]
    """What is written for it in SQL, in capital letters."""
    parentheses: Parentheses = Parentheses.DIGITS
    octets: int | None = None
    """Bytes of the longest value, where the name alone tells."""
    unit: int | None = None
    """Bytes of each 1 of the length in parentheses, where these are no characters."""
    logged: int | None = None
    """Bytes of the longest value as the table map counts them, where the catalog tells no length."""
    width: tuple[int, int] | None = None
    """Digits that an integer is printed with where they are left out: signed, unsigned."""
    as_bytes: str = ""
    """What it becomes under the character set `binary`."""

    @classmethod
    def of(cls, name: str, parentheses: Parentheses = Parentheses.DIGITS, *synonyms: str, **more: Any) -> SqlName:
        """Make a name that is written as it is shown, or with a synonym."""
        return cls(name, (name.upper(), *synonyms), parentheses, **more)


class WireType(NamedTuple):
    """The way in which a type is told in one form: its codes, and the bytes of a value in the words of
    docs/types.md.
    """

    codes: tuple[ColumnType, ...]
    bytes: str


class ResultType(NamedTuple):
    """The way in which a type is told in the result of a prepared SELECT.

    `asked` is the expression of the select list: {c} stands for the column, {n} for the bytes of its values. `codes`
    are the types that the server answers with, `image` is the one that a table map has for the values then made.
    """

    asked: str
    codes: tuple[ColumnType, ...]
    image: ColumnType
    transcoding: Transcoding

    @classmethod
    def plain(cls, code: ColumnType, transcoding: Transcoding, image: ColumnType | None = None) -> ResultType:
        """Make the form of a type that is asked for as it is, and answered with one code."""
        return cls("{c}", (code,), code if image is None else image, transcoding)


class Wide(NamedTuple):
    """The kind of columns with more digits (DECIMAL) or bits (BIT) than `beyond`, and what docs/types.md says of it."""

    beyond: int
    kind: Kind
    declared: str
    bytes: str
    remarks: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeEntry:
    """One type. `written` says it as in CREATE TABLE, as far as the stream tells; None: that is as it is `declared`."""

    declared: str
    names: tuple[SqlName, ...]
    binlog: WireType
    result_set: ResultType | None
    """None for a type that tables of MariaDB do not have under a name of its own: another entry has the name."""
    key: KeyForm | None
    """What a value of it becomes in the bytes of a key; None where no key can be read by it."""
    kind: Kind
    written: Callable[[ColumnDef, ColumnFacts], str] | None = None
    remarks: str = ""
    unsigned: Kind | None = None
    wide: Wide | None = None
