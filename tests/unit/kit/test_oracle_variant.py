from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from replica.protocol.constants import ColumnType
from replica.rows.types.types import variant_metadata
from tests.kit.binlog.parsed import BINARY, column, integer, layout_of, varchar
from tests.kit.oracle.variant import variant_object


def through_spark(columns: tuple[Any, ...], image: dict[str, Any]) -> Any:
    """What Spark's own decoder makes of the encoding."""
    layout = layout_of(*columns)
    metadata = variant_metadata([c.name for c in layout.columns])
    with localcontext(prec=38):  # Spark's decoder computes decimals in the current context
        return VariantVal(variant_object(layout.columns, image), metadata).toPython()


VALUES: list[tuple[Any, Any]] = [
    (integer("c", ColumnType.LONGLONG), 0),
    (integer("c", ColumnType.LONGLONG), -(2**63)),
    (integer("c", ColumnType.LONGLONG), 2**31),
    (integer("c", ColumnType.TINY), -128),
    (integer("c", ColumnType.LONGLONG, unsigned=True), 2**63 - 1),
    (column("c", ColumnType.FLOAT, b"\4"), 0.5),
    (column("c", ColumnType.DOUBLE, b"\x08"), 0.1),
    (column("c", ColumnType.NEWDECIMAL, b"\x05\2"), Decimal("-123.40")),
    (column("c", ColumnType.NEWDECIMAL, b"\x12\0"), Decimal(10**18 - 1)),
    (column("c", ColumnType.NEWDECIMAL, b"\x26\x0a"), Decimal("-1234567890123456789012345678.0123456789")),
    (column("c", ColumnType.DATE), date(1, 1, 1)),
    (column("c", ColumnType.DATETIME2, b"\6"), datetime(9999, 12, 31, 23, 59, 59, 999999)),  # noqa: DTZ001
    (column("c", ColumnType.TIMESTAMP2, b"\6"), datetime(2106, 2, 7, 6, 28, 15, 999999, tzinfo=UTC)),
    (varchar("c"), ""),
    (varchar("c"), "x" * 63),
    (varchar("c"), "é" * 32),
    (varchar("c"), "x" * 70000),
    (column("c", ColumnType.BLOB, b"\4", collation=BINARY), b"\0\xff"),
    (integer("c"), None),
]


@pytest.mark.parametrize(("definition", "value"), VALUES, ids=lambda v: repr(v)[:30] if not hasattr(v, "type") else "")
def test_spark_reads_what_we_write(definition: Any, value: Any) -> None:
    read = through_spark((definition, integer("z")), {"c": value, "z": 7})
    assert read == {"c": value, "z": 7}
    assert type(read["c"]) is type(value)


def test_unsigned_integers_beyond_bigint_are_decimals() -> None:
    definition = integer("c", ColumnType.LONGLONG, unsigned=True)
    assert through_spark((definition,), {"c": 2**64 - 1}) == {"c": Decimal(2**64 - 1)}


def test_times_are_text_as_select_prints_it() -> None:
    definition = column("c", ColumnType.TIME2, b"\2")
    value = -timedelta(hours=838, microseconds=10_000)
    assert through_spark((definition,), {"c": value}) == {"c": "-838:00:00.01"}


def test_absent_is_no_field_and_null_is_the_variant_null() -> None:
    columns = integer("b"), integer("a"), integer("c")
    layout = layout_of(*columns)
    value = VariantVal(variant_object(layout.columns, {"b": None}), variant_metadata(["b", "a", "c"]))
    assert json.loads(value.toJson()) == {"b": None}
    assert through_spark(columns, {}) == {}


@pytest.mark.parametrize("count", [1, 255, 256, 257, 1017])
def test_many_columns(count: int) -> None:
    columns = tuple(integer(f"c{i}") for i in range(count))
    image = {f"c{i}": i for i in range(count)}
    assert through_spark(columns, image) == image


@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1), st.text(), min_size=1
    )
)
def test_any_names_and_texts(image: dict[str, str]) -> None:
    columns = tuple(varchar(name) for name in image)
    assert through_spark(columns, image) == image


def test_the_dictionary_is_sorted() -> None:
    assert variant_metadata(["b", "a"]) == variant_metadata(["a", "b"])
    assert variant_metadata([]) == bytes((0x11, 0, 0))
