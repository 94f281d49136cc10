"""Values of existing rows in a column that ALTER TABLE adds. No row of the binlog has these values.

`value_of` returns a `KnownValue`, exactly as the server's SELECT returns it. None means that the table has to be
re-snapshot, because the default is no plain constant or its conversion is not certain. Rounding, character sets, time
zones and labels in another spelling make a conversion uncertain. `read_defaults` and `defaults_after` give the DEFAULT
of each column.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.handshake.registration import MAX_CATALOG_BYTES, Query
from replica.schema.text.sql_tokens import tokenize
from streaming_source.schema.row_schema import spark_type

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import Column

    from replica.handshake.registration import Steps
    from replica.rows.types.types import ValuePolicy
    from replica.schema.definition.definition import ColumnItem
    from replica.schema.effects.effect import StatementEffect
    from replica.schema.known_tables import TableName
    from replica.schema.table import ColumnSchema
    from replica.schema.text.sql_tokens import Token

_NO_VALUE: Final = "NULL"
_INTEGERS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}

_INTEGER: Final = re.compile(r"[+-]?\d{1,20}")

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d{1,3})?")
_PLAIN: Final = re.compile(r"[+-]?\d+(\.\d+)?")
_PRINTED: Final = re.compile(r"0|-?[1-9]\d{0,17}")
"""Numbers that the server prints as they are written in the statement."""
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.(\d{1,6}))?")
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
_TEXTS: Final = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_FIRST_YEAR: Final = 1901
_LAST_YEAR: Final = 2155
_MOST_BITS: Final = 64
_HEXADECIMAL: Final = 16
_DIGITS: Final = {2: re.compile(r"[01]+"), _HEXADECIMAL: re.compile(r"[0-9a-fA-F]+")}


class KnownValue(NamedTuple):
    """Value of a column.

    Attributes:
        content: the text or bytes from which the value is made; None for NULL.
        kinds: the Spark types to which `content` is cast, one after the other. The last one is the column's type. Empty
            for text and bytes, which need no cast.
    """

    content: str | bytes | None
    kinds: tuple[str, ...] = ()

    def column(self) -> Column:
        """Return the value as a Spark column. It is a literal, so Spark parses no SQL in it."""
        from pyspark.sql import functions as f

        value = f.lit(self.content)
        for kind in self.kinds:
            value = value.cast(spark_type(kind))
        return value


NULL: Final = KnownValue(None)


class Constant(NamedTuple):
    """Constant of a statement: quoted text, a number, or binary or hexadecimal digits.

    Attributes:
        bits: the value of the digits, if it fits 64 bits.
        octets: the bytes of the digits, for hexadecimal digits of whole bytes.
    """

    quoted: str | None = None
    number: str | None = None
    bits: int | None = None
    octets: bytes | None = None

    @property
    def digits(self) -> str:
        """Text of a number, quoted or not."""
        return (self.number if self.quoted is None else self.quoted) or ""


def value_of(
    column: ColumnSchema, default: tuple[Token, ...] | None, kind: str, policy: ValuePolicy
) -> KnownValue | None:
    """Return the value of existing rows; None if only the server can compute it.

    Args:
        column: the column after the statement.
        default: the tokens after DEFAULT; None if there is no DEFAULT.
        kind: the column's type in the target.
        policy: the conversion of values that the types cannot hold.
    """
    if column.period is not None or column.data_type == "timestamp":
        return None  # its value may be the statement's time, or depend on the session's time zone
    if column.data_type in ("date", "datetime") and policy.invalid_dates != "null":
        return None
    if default is None:
        return NULL if column.nullable else _implicit(column, kind)
    if [token.upper for token in default] == [_NO_VALUE]:
        return NULL
    return _converted(column, _constant(default), kind)


def _implicit(column: ColumnSchema, kind: str) -> KnownValue | None:
    """Return the implicit value with which the server fills a NOT NULL column without a default."""
    name = column.data_type
    if name in ("date", "datetime"):
        return _converted(column, Constant("0000-00-00"), kind)
    if name == "year":
        return KnownValue("0", (kind,))
    if name == "longtext":
        return None  # JSON is a longtext with a check, which may refuse the empty text
    if name in (*_INTEGERS, "decimal", "float", "double", "bit"):
        return _converted(column, Constant(number="0"), kind)
    first = (column.labels or ("",))[0] if name == "enum" else "00:00:00" if name == "time" else ""
    return _converted(column, Constant(first), kind)


def _converted(column: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    convert = _CONVERTED.get(column.data_type)
    return None if convert is None else convert(column, constant, kind)


def _integer(column: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    written = constant.digits
    if not _INTEGER.fullmatch(written):
        return None
    bits = _INTEGERS[column.data_type]
    low, high = (0, 2**bits - 1) if column.unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return KnownValue(str(int(written)), (kind,)) if low <= int(written) <= high else None


def _decimal(column: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    written = constant.digits
    if not _PLAIN.fullmatch(written) or not kind.startswith("DECIMAL"):
        return None
    digits, scale = column.precision or 10, column.scale or 0
    fits = len(written.partition(".")[2]) <= scale and abs(Decimal(written)) < 10 ** (digits - scale)
    return KnownValue(written, (kind,)) if fits and (not column.unsigned or Decimal(written) >= 0) else None


def _floating(column: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    written = constant.digits
    if not _NUMBER.fullmatch(written) or "(" in column.column_type:
        return None
    if written.startswith("-") and (column.unsigned or not float(written)):
        return None
    return KnownValue(written, ("DOUBLE", kind))


def _text(column: ColumnSchema, constant: Constant, _: str) -> KnownValue | None:
    written = constant.quoted
    if written is None and constant.number is not None and _PRINTED.fullmatch(constant.number):
        written = constant.number
    if written is None or not (written.isascii() or column.charset == "utf8mb4") or "\ufffd" in written:
        return None
    length = _length(column)
    if len(written.encode()) > (column.octets or 0) or (length is not None and len(written) > length):
        return None
    return KnownValue(written.rstrip(" ") if column.data_type == "char" else written)


def _binary(column: ColumnSchema, constant: Constant, _: str) -> KnownValue | None:
    written, value = constant.quoted, constant.octets
    if written is not None and written.isascii():
        value = written.encode("ascii")
    if value is None or len(value) > (column.octets or 0):
        return None
    filled = value.ljust(column.octets or 0, bytes(1)) if column.data_type == "binary" else value
    return KnownValue(filled)


def _label(column: ColumnSchema, constant: Constant, _: str) -> KnownValue | None:
    written = constant.quoted
    if written is None or not (written in (column.labels or ()) or (column.data_type == "set" and not written)):
        return None
    return KnownValue(written)


def _bit(column: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    value = constant.bits
    if value is None and constant.number is not None and _PRINTED.fullmatch(constant.number):
        value = int(constant.number)
    if value is None or not 0 <= value < 2 ** (column.precision or 1):
        return None
    return KnownValue(str(value), (kind,)) if kind.startswith(("DECIMAL", "BIGINT", "INT", "BOOLEAN")) else None


def _date(_: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    return _moment(constant.quoted or "", "", kind)


def _datetime(column: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    day, space, time = (constant.quoted or "").partition(" ")
    found = _TIME.fullmatch(time)
    if space and (found is None or len(found[2] or "") > (column.fsp or 0)):
        return None
    return _moment(day, space + time, kind)


def _moment(day: str, time: str, kind: str) -> KnownValue | None:
    if day == "0000-00-00" and not time.strip(" 0:."):
        return NULL
    try:
        known = _DAY.fullmatch(day) and dt.date(*map(int, day.split("-")))
    except ValueError:
        return None
    return KnownValue(f"{day}{time}", (kind,)) if known else None


def _time(column: ColumnSchema, constant: Constant, _: str) -> KnownValue | None:
    found = _TIME.fullmatch(constant.quoted or "")
    fraction, places = (found[2] or "", column.fsp or 0) if found else ("", -1)
    if found is None or len(fraction) > places:
        return None
    seconds = found[0].partition(".")[0]
    return KnownValue(f"{seconds}.{fraction.ljust(places, '0')}" if places else seconds)


def _year(_: ColumnSchema, constant: Constant, kind: str) -> KnownValue | None:
    written = constant.digits
    known = _INTEGER.fullmatch(written) and _FIRST_YEAR <= int(written) <= _LAST_YEAR
    return KnownValue(str(int(written)), (kind,)) if known else None


_CONVERTED: Final[dict[str, Callable[[ColumnSchema, Constant, str], KnownValue | None]]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(_TEXTS, _text),
    **dict.fromkeys(_BYTES, _binary),
    **dict.fromkeys(("enum", "set"), _label),
    **dict.fromkeys(("float", "double"), _floating),
    "decimal": _decimal,
    "bit": _bit,
    "date": _date,
    "datetime": _datetime,
    "time": _time,
    "year": _year,
}


def _length(column: ColumnSchema) -> int | None:
    """Return the number of characters that a CHAR or VARCHAR holds."""
    found = re.fullmatch(r"(?:var)?char\((\d+)\).*", column.column_type, re.DOTALL)
    return int(found[1]) if found else None


def _constant(tokens: tuple[Token, ...]) -> Constant:
    first, rest = tokens[0], tokens[1:]
    if first.kind in ("string", "double"):
        return Constant() if rest else Constant(first.text)
    written = "".join(token.text for token in tokens)
    if first.text.lower() in ("b", "x") and [token.kind for token in rest] == ["string"]:
        written = f"0{written.lower()}"
    elif any(token.kind not in ("word", "symbol") for token in rest):
        return Constant()
    if (base := {"0b": 2, "0x": _HEXADECIMAL}.get(written[:2])) is not None:
        return _of_digits(written[2:], base)
    written = {"TRUE": "1", "FALSE": "0"}.get(written.upper(), written)
    return Constant(number=written) if _NUMBER.fullmatch(written) else Constant()


def _of_digits(written: str, base: int) -> Constant:
    if not _DIGITS[base].fullmatch(written):
        return Constant()
    value = int(written, base)
    octets = bytes.fromhex(written) if base == _HEXADECIMAL and len(written) % 2 == 0 else None
    return Constant(bits=value if value < 2**_MOST_BITS else None, octets=octets)


# Text after DEFAULT by column, kept in the control table: the value of a column that an image leaves out
# (`table_applier.py`). Generated columns have no entry.


Defaults = dict[str, str | None]
"""Text after DEFAULT, by column; None for a column without a default."""

NULL_DEFAULT: Final = "NULL"

_AUTO: Final = "AUTO_INCREMENT"
"""Entry of an AUTO_INCREMENT column, whose default is no constant."""
_LOST: Final = "?"
"""Character that the catalog shows for a character of more than three UTF-8 bytes. A default with it is unknown."""
_LISTED: Final = """\
SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, IF(EXTRA LIKE '%%auto_increment%%', %s, COLUMN_DEFAULT)
  FROM information_schema.COLUMNS
 WHERE GENERATION_EXPRESSION IS NULL AND TABLE_SCHEMA IN ({databases})"""


def read_defaults(databases: Sequence[str]) -> Steps[dict[TableName, Defaults]]:
    """Return the defaults of all tables in these databases."""
    found: dict[TableName, Defaults] = {}
    if databases:
        listed = _LISTED.format(databases=", ".join(["%s"] * len(databases)))
        for database, table, column, default in (yield Query(listed, (_AUTO, *databases), MAX_CATALOG_BYTES)):
            text = _LOST if default is not None and _LOST in default else default
            found.setdefault((str(database), str(table)), {})[str(column)] = text
    return found


def defaults_after(effect: StatementEffect, before: Defaults) -> Defaults:
    """Return the defaults of a table after a statement."""
    change = effect.alteration
    if change is None:
        return before
    found: Defaults = {}
    for column, default in before.items():
        key = change.key(column)
        if key not in change.dropped and key not in change.changed:
            written = change.defaults.get(key)
            found[change.renamed.get(key, column)] = _written(written) if key in change.defaults else default
    for item in [*change.changed.values(), *(item for old, item in change.added if old is None)]:
        if not item.column.computed:
            found.setdefault(item.column.name, _declared(item))
    return found


def numbered(defaults: Mapping[str, str | None]) -> list[str]:
    """Return the AUTO_INCREMENT columns."""
    return [name for name, default in defaults.items() if default == _AUTO]


def _declared(item: ColumnItem) -> str | None:
    if item.numbered:
        return _AUTO
    if item.default is None and item.column.nullable and item.column.data_type == "timestamp":
        return NULL_DEFAULT  # declared NULL; without NULL, the server may make a TIMESTAMP NOT NULL
    return _written(item.default)


def _written(default: tuple[Token, ...] | None) -> str | None:
    """Return the tokens of a default as text that is parsed as the same tokens."""
    if default is None:
        return None
    return " ".join(_quoted(token.text) if token.kind in ("string", "double") else token.text for token in default)


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def same_defaults(one: Mapping[str, str | None], other: Mapping[str, str | None]) -> bool:
    """Return True if two sets of defaults have the same tokens, however they are written."""
    return {name: _token_texts(text) for name, text in one.items()} == {
        name: _token_texts(text) for name, text in other.items()
    }


def _token_texts(text: str | None) -> list[str] | None:
    return None if text is None else [token.text for token in tokenize(text)]
