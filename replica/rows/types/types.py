"""The Arrow and Spark types that a type becomes: from the registry, a declaration, and the reader's policy.

In: a type by its wire code (TABLE_MAP) or by its name (information_schema). Out: a `Kind`, which both decoders
dispatch on, and the Arrow and Spark types that belong to it. Both ways lead through the same entry of the registry, so
a schema that was made from the catalog before the first event fits the rows that the stream brings later.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import pyarrow as pa

from replica.errors import SchemaError
from replica.rows.types.entry import Sql
from replica.rows.types.registry import KINDS, TYPE_OF_NAME, TYPES

if TYPE_CHECKING:
    from replica.rows.types.entry import TypeEntry
    from replica.rows.types.kinds import Kind


@dataclass(frozen=True, slots=True)
class ValuePolicy:
    """The policy for values that Spark's types cannot hold, and for those that it can hold in two ways.

    `invalid_dates` rules zero dates, partial dates and days that no calendar has (31 February): 'null' makes them
    NULL, 'error' stops with a ProtocolError, 'text' turns every DATE, DATETIME and TIMESTAMP column into a STRING.
    `invalid_text` rules bytes that are no character of their column's set: 'replace' puts U+FFFD in their place,
    'error' stops with a ProtocolError. Strings in Arrow are valid UTF-8 under both.
    `geometry`: 'binary' hands on the stored bytes, 'spark' makes a struct that Spark reads as GEOMETRY.
    `stored_digits`: values of FLOAT(M,D) and DOUBLE(M,D) as they are stored, not rounded to D digits as SELECT does.
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
    """The facts that are asked of a catalog column: a `ColumnSchema` has them."""

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
    """Return the Arrow type and the Spark DDL type of a kind; precision and scale matter to DECIMAL alone."""
    entry = KINDS[kind]
    if isinstance(entry.arrow, pa.DataType):
        return entry.arrow, entry.spark
    return entry.arrow(precision, scale), entry.spark.format(p=precision, s=scale)


def refine(entry: TypeEntry, *, unsigned: bool, precision: int, policy: ValuePolicy) -> Kind:
    """Narrow the type's kind by the declaration (signedness, a wide DECIMAL, a full BIT) and by the policy.

    `precision` is the digits of a DECIMAL or the bits of a BIT.
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
    """List the types that the binlog writes under one code: only the catalog, and the collation of text, tell them
    apart.
    """
    return [entry for entry in TYPES if code in entry.binlog.codes]


def type_named(code: int, data_type: str) -> TypeEntry | None:
    """Find the type of this name that the binlog writes under this code."""
    return next((e for e in types_of_code(code) if any(name.name == data_type for name in e.names)), None)


def type_of_wire(code: int, *, binary: bool) -> TypeEntry | None:
    """Find the type as the stream alone tells it; None for a code that the registry lacks.

    Collation 63 tells bytes from text. UUID and INET look like BINARY there, VECTOR like VARBINARY.
    """
    found = types_of_code(code)
    texts = [entry for entry in found if KINDS[entry.kind].sql is Sql.CHARACTERS]
    wanted = [entry for entry in found if entry not in texts] if binary and len(found) > 1 else texts or found
    return wanted[0] if wanted else None


def type_of(column: Declared) -> TypeEntry:
    """Find the registry's entry of a catalog column's type; SchemaError for a type that is not in the registry."""
    entry = TYPE_OF_NAME.get(column.data_type)
    if entry is None:
        raise SchemaError(
            f"Column {column.name} has the type {column.column_type}, which is not in the type table.",
            hint="Leave the table out, or report the type together with the server's version.",
        )
    return entry


def output_column(column: Declared, policy: ValuePolicy) -> OutputColumn:
    """Return the Spark side of a catalog column, before any event was seen; SchemaError for a type the registry
    lacks.
    """
    kind = refine(type_of(column), unsigned=column.unsigned, precision=column.precision or 0, policy=policy)
    arrow, spark = arrow_and_spark(kind, column.precision or 0, column.scale or 0)
    return OutputColumn(column.name, arrow, spark)
