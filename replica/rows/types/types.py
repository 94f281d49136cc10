"""Type registry: all types and kinds, their lookup tables, and the Arrow and Spark types of a column.

A type is given by its wire code (TABLE_MAP) or by its name (information_schema). The result is a `Kind`, which both
decoders dispatch on, with its Arrow and Spark types. Both lookups must use the same registry entry. So a schema made
from the catalog before the first event fits the rows that the stream delivers later.

Loading this module checks that the tables are complete. A kind with no entry or with two, and a spelling that two types
claim, raise a TypeError. So does an entry that lacks a field, in the module of its family.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Protocol

import pyarrow as pa

from replica.errors import SchemaError
from replica.rows.types.entry import Sql
from replica.rows.types.kinds import Kind
from replica.rows.types.values import binary, numbers, temporal, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from replica.rows.types.entry import KindEntry, SqlName, TypeEntry

# The catalog distinguishes types that share a code. Without it, a code means the first type that fits (tables/plan.py).
_FAMILIES: Final = (numbers, temporal, text, binary)


def by_kind(entries: Iterable[KindEntry], kinds: Iterable[Kind]) -> Mapping[Kind, KindEntry]:
    """Return the entries by kind.

    Raises:
        TypeError: A kind has no entry, or two.
    """
    found: dict[Kind, KindEntry] = {}
    for entry in entries:
        if found.setdefault(entry.kind, entry) is not entry:
            raise TypeError(f"{entry.kind!r} has two entries")
    missing = [kind.name for kind in kinds if kind not in found]
    if missing:
        raise TypeError(f"no family under rows/types/values handles the kind {', '.join(missing)}")
    return found


def by_name(types: Iterable[TypeEntry]) -> Mapping[str, TypeEntry]:
    """Return the first type of each DATA_TYPE."""
    found: dict[str, TypeEntry] = {}
    for entry in types:
        for name in entry.names:
            found.setdefault(name.name, entry)
    return found


def by_keyword(names: Iterable[SqlName]) -> Mapping[str, SqlName]:
    """Return the names by their spelling in SQL.

    Raises:
        TypeError: Two names claim one spelling.
    """
    found: dict[str, SqlName] = {}
    for name in names:
        for keyword in name.keywords:
            if found.setdefault(keyword, name).name != name.name:
                raise TypeError(f"the word {keyword} stands for {found[keyword].name} and for {name.name}")
    return found


KINDS: Final = by_kind((entry for family in _FAMILIES for entry in family.KINDS), Kind)
TYPES: Final[tuple[TypeEntry, ...]] = tuple(entry for family in _FAMILIES for entry in family.TYPES)
TYPE_OF_NAME: Final = by_name(TYPES)
NAMES: Final = {name.name: name for entry in reversed(TYPES) for name in entry.names}
KEYWORDS: Final = by_keyword(NAMES.values())


@dataclass(frozen=True, slots=True)
class ValuePolicy:
    """Policy for values that Spark's types cannot hold, or can hold in two ways.

    Attributes:
        invalid_dates: How to convert zero dates, partial dates and dates that do not exist (31 February). 'null' makes
            them NULL, 'error' raises a ProtocolError, 'text' makes every DATE, DATETIME and TIMESTAMP column a STRING.
        invalid_text: How to convert bytes that are invalid in the column's character set. 'replace' writes U+FFFD,
            'error' raises a ProtocolError. Strings in Arrow are valid UTF-8 under both.
        geometry: 'binary' outputs the stored bytes, 'spark' makes a struct that Spark reads as GEOMETRY.
        stored_digits: True to output FLOAT(M,D) and DOUBLE(M,D) as stored, without rounding to D digits as SELECT does.
    """

    invalid_dates: Literal["null", "error", "text"] = "null"
    invalid_text: Literal["replace", "error"] = "replace"
    geometry: Literal["binary", "spark"] = "binary"
    stored_digits: bool = False


@dataclass(frozen=True, slots=True)
class OutputColumn:
    """A column as Spark sees it: `arrow` is the type of its buffers, `spark` the same type in Spark's DDL."""

    name: str
    arrow: pa.DataType
    spark: str


class Declared(Protocol):
    """Attributes of a catalog column that the type lookup needs; a `ColumnSchema` has them."""

    @property
    def name(self) -> str: ...
    @property
    def data_type(self) -> str: ...
    @property
    def column_type(self) -> str: ...
    @property
    def unsigned(self) -> bool: ...
    @property
    def precision(self) -> int | None: ...
    @property
    def scale(self) -> int | None: ...


def arrow_and_spark(kind: Kind, precision: int = 0, scale: int = 0) -> tuple[pa.DataType, str]:
    """Return the Arrow type and the Spark DDL type of a kind; only DECIMAL uses precision and scale."""
    entry = KINDS[kind]
    if isinstance(entry.arrow, pa.DataType):
        return entry.arrow, entry.spark
    return entry.arrow(precision, scale), entry.spark.format(p=precision, s=scale)


def refine(entry: TypeEntry, *, unsigned: bool, precision: int, policy: ValuePolicy) -> Kind:
    """Return the kind of a column, from its type, its declaration and the policy.

    The declaration decides by signedness, by a wide DECIMAL and by a BIT of 64 bits.

    Args:
        entry: The registry entry of the type.
        unsigned: True for an unsigned integer.
        precision: Digits of a DECIMAL, or bits of a BIT.
        policy: How to convert values that Spark's types cannot hold.
    """
    kind = entry.unsigned if unsigned and entry.unsigned is not None else entry.kind
    if entry.wide is not None and precision > entry.wide.beyond:
        kind = entry.wide.kind
    if policy.geometry == "binary":
        kind = KINDS[kind].as_stored or kind
    if policy.invalid_dates == "text":
        kind = KINDS[kind].as_text or kind
    return kind


def types_of_code(code: int) -> list[TypeEntry]:
    """List the types that share a wire code. Only the catalog, and the collation of text, distinguish them."""
    return [entry for entry in TYPES if code in entry.binlog.codes]


def type_named(code: int, data_type: str) -> TypeEntry | None:
    """Return the type with this name that the binlog writes under this code; None if the registry has none."""
    return next((e for e in types_of_code(code) if any(name.name == data_type for name in e.names)), None)


def type_of_wire(code: int, *, binary: bool) -> TypeEntry | None:
    """Return the type that the stream alone indicates; None for a code that the registry lacks.

    Collation 63 distinguishes bytes from text. With the stream alone, UUID and INET look like BINARY, and VECTOR like
    VARBINARY.
    """
    found = types_of_code(code)
    texts = [entry for entry in found if KINDS[entry.kind].sql is Sql.CHARACTERS]
    wanted = [entry for entry in found if entry not in texts] if binary and len(found) > 1 else texts or found
    return wanted[0] if wanted else None


def type_of(column: Declared) -> TypeEntry:
    """Return the registry entry of a catalog column's type.

    Raises:
        SchemaError: The registry does not have the type.
    """
    entry = TYPE_OF_NAME.get(column.data_type)
    if entry is None:
        raise SchemaError(
            f"Column {column.name} has the type {column.column_type}, which is not in the type table.",
            hint="Leave the table out, or report the type together with the server's version.",
        )
    return entry


def output_column(column: Declared, policy: ValuePolicy) -> OutputColumn:
    """Return the Spark side of a catalog column, before the first event.

    Raises:
        SchemaError: The registry does not have the type.
    """
    kind = refine(type_of(column), unsigned=column.unsigned, precision=column.precision or 0, policy=policy)
    arrow, spark = arrow_and_spark(kind, column.precision or 0, column.scale or 0)
    return OutputColumn(column.name, arrow, spark)


# The encoding is Spark's (org.apache.spark.types.variant.VariantUtil).


_VERSION, _SORTED = 1, 1 << 4


def variant_metadata(names: Sequence[str]) -> bytes:
    """Return the dictionary of these names; the id of a name is its rank in sort order."""
    # Spark sorts as Java does, by UTF-16 units. MariaDB's identifiers have no characters beyond the BMP.
    texts = [name.encode() for name in sorted(names)]
    size = width_of(max(len(texts), sum(map(len, texts))))
    offsets = [sum(map(len, texts[:i])) for i in range(len(texts) + 1)]
    header = bytes((_VERSION | _SORTED | size - 1 << 6,))
    return header + b"".join(n.to_bytes(size, "little") for n in (len(texts), *offsets)) + b"".join(texts)


def width_of(largest: int) -> int:
    """Return the bytes that an unsigned number needs, 1 to 4."""
    return max(1, (largest.bit_length() + 7) // 8)
