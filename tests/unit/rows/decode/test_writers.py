"""Damaged UTF-8 in typed columns and in VARIANT, under both policies, against Python's own decoder."""

from __future__ import annotations

from typing import Literal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.variant_utils import VariantUtils

from replica.errors import ProtocolError
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.decode.writers import damaged_row, repaired
from replica.rows.types.types import OutputColumn, ValuePolicy
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, check_twin, kernel_rows, reference_rows

TABLES = Tables({"d.t": None})
PIECES = (
    b"\xed\xa0\x80\xed\xb0\x80", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc0\x80", b"\xf5", b"\xe0\x80\x80", b"\x80" * 9,
    b"\xf4\x90\x80\x80", b"\xf0\x80\x80\x80", "aé€😀".encode(), b"ascii that is longer than a word or two of it",
)  # fmt: skip
TEXT = st.lists(st.sampled_from(PIECES) | st.binary(max_size=6), max_size=6).map(b"".join)


class Stored:
    """An array in the place of a ColumnSet."""

    def __init__(self, values: list[bytes | None]) -> None:
        self.array = array(values)

    def text(self, _: int) -> tuple[int, int]:
        offsets, data = self.array.buffers()[1:]
        return offsets.address, data.address


def damaged(values: list[bytes | None]) -> int | None:
    return damaged_row(Stored(values), 0, len(values))  # type: ignore[arg-type]


def array(values: list[bytes | None]) -> pa.StringArray:
    """What a kernel writes: strings that nobody has checked."""
    stored = pa.array(values, pa.binary())
    return pa.StringArray.from_buffers(len(values), *stored.buffers()[1:], stored.buffers()[0])


@settings(max_examples=300)
@given(st.lists(st.none() | TEXT, min_size=1, max_size=12))
def test_damage_is_found_and_repaired_as_python_does_it(values: list[bytes | None]) -> None:
    good = [value is None or value == value.decode("utf-8", "replace").encode() for value in values]
    assert damaged(values) == (None if all(good) else good.index(False))
    result = repaired(array(values))
    result.validate(full=True)
    assert result.to_pylist() == [None if value is None else value.decode("utf-8", "replace") for value in values]


def test_a_character_cut_in_two_by_two_values_is_none() -> None:
    euro = "€".encode()
    assert damaged([b"a", euro[:1], euro[1:], b"b"]) == 1


@pytest.mark.parametrize("size", [*range(20), 63, 64, 65, 71, 130])
def test_every_place_is_looked_at(size: int) -> None:
    assert damaged([b"x" * size]) is None
    for at in range(size):
        assert damaged([b"x" * at + b"\xff" + b"x" * (size - at - 1)]) == 0


def stream(value: bytes, collation: int = 45) -> Primary:
    made = Primary()
    made.rows(
        table_map(1, [Column("id", 3), Column("c", 252, b"\4", collation=collation)]),
        (INSERT, rows(1, 2, image([bytes(4), b"\2\0\0\0ok"]), flags=0)),
        (INSERT, rows(1, 2, image([bytes(4), len(value).to_bytes(4, "little") + value]))),
    )
    return made


@pytest.mark.parametrize("shape", ["envelope", "flat", "variant"])
def test_replaced_text_takes_more_room_than_it_had(shape: Literal["envelope", "flat", "variant"]) -> None:
    value = b"\xff" * 70_000
    decoded = check_twin(stream(value).binlog(), TABLES, DecodeOptions(shape=shape, batch_bytes=1000))
    if shape == "variant":
        last = decoded.after[0].to_pylist()[-1]
        text = VariantUtils.to_python(last["value"], last["metadata"])["c"]
    else:
        text = (decoded.columns or decoded.after)[1].to_pylist()[-1]
    assert text == "\ufffd" * 70_000


@pytest.mark.parametrize("shape", ["envelope", "flat", "variant"])
@pytest.mark.parametrize(
    ("collation", "damaged"), [(45, b"a\xed\xa0\x80"), (28, b"a\x81"), (54, b"\xd8\x00"), (10, b"\x7f")]
)
def test_damage_can_be_an_error(shape: Literal["envelope", "flat", "variant"], collation: int, damaged: bytes) -> None:
    output = [OutputColumn("c", pa.string(), "STRING")]
    options = DecodeOptions(shape=shape, invalid_text="error")
    made = stream(damaged, collation)
    with pytest.raises(ProtocolError, match=r"column c of d\.t holds bytes that are not text") as caught:
        kernel_rows(bytes(made), RangeDecoder(TABLES, options, None if shape == "variant" else output))
    assert caught.value.offset is not None
    assert "invalidText" in caught.value.hint
    with pytest.raises(ProtocolError, match=r"column c .*holds bytes that are not text"):
        list(reference_rows(made.binlog(), TABLES, ValuePolicy(invalid_text="error")))
    good = stream("a€\ufffd".encode("utf-16-be") if collation == 54 else b"a", collation)
    check_twin(good.binlog(), TABLES, options)
