"""DECIMAL: a number up to the 38 digits of Spark and Arrow, text beyond them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from replica.protocol.constants import ColumnType
from replica.protocol.rows import values as v
from replica.rows.types.entry import (
    Json,
    KindEntry,
    Parentheses,
    ResultType,
    Sql,
    SqlName,
    Told,
    TypeEntry,
    Variant,
    Wide,
    Widens,
    WireType,
    WireValue,
    printed,
)
from replica.rows.types.kinds import KeyForm, Kind, Transcoding

if TYPE_CHECKING:
    from replica.rows.types.entry import ColumnFacts

MAX_DECIMAL_PRECISION: Final = 38  # of Spark's DECIMAL and Arrow's decimal128; MariaDB allows 65


def _text(data: bytes, column: ColumnFacts) -> str:
    return f"{v.decimal(data, column.precision, column.scale):f}"


KINDS = (
    KindEntry(
        kind=Kind.DECIMAL,
        binlog=WireValue(lambda data, column: v.decimal(data, column.precision, column.scale), Told.DIGITS),
        arrow=pa.decimal128,
        spark="DECIMAL({p},{s})",
        variant=Variant.DECIMAL,
        json=Json.TEXT,
        sql=Sql.NUMBER,
        widens=Widens.DIGITS,
    ),
    printed(Kind.DECIMAL_TEXT, WireValue(_text, Told.DIGITS)),
)
TYPES = (
    TypeEntry(
        declared="DECIMAL(p≤38, s)",
        names=(SqlName.of("decimal", Parentheses.PRECISION, "DEC", "NUMERIC", "FIXED"),),
        binlog=WireType((ColumnType.NEWDECIMAL,), "1-17"),
        result_set=ResultType.plain(ColumnType.NEWDECIMAL, Transcoding.DECIMAL),
        key=KeyForm.STORED,
        kind=Kind.DECIMAL,
        wide=Wide(
            MAX_DECIMAL_PRECISION,
            Kind.DECIMAL_TEXT,
            "DECIMAL(p>38, s)",
            "18-30",
            "Exact decimal text with the scale's zeros, as SELECT prints it.",
        ),
        written=lambda column, _: f"DECIMAL({column.precision},{column.scale})",
        remarks="Exact, with the scale's zeros.",
    ),
)
