"""VARIANT with a part of the columns: the kernel puts out what the plain decoder does, and steps over all else."""

from __future__ import annotations

import struct

import pytest
from pyspark.sql.variant_utils import VariantUtils

from replica.errors import UnsupportedColumnError
from replica.protocol.constants import EventType
from replica.rows.decode.decode import DecodeOptions
from replica.schema.patterns import ColumnMatcher
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, UPDATE, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, check_twin

ID, NAME, SIZE = Column("id", 3), Column("Name", 15, b"\x10\0"), Column("size", 3)
START, END = (Column(name, 17, b"\6", nullable=False) for name in ("row_start", "row_end"))
NOW, NEVER = bytes.fromhex("65e071c0000001"), bytes.fromhex("ffffffff0f423f")
VARIANT = DecodeOptions(shape="variant")


def stream_of(columns: list[Column], *values: list[bytes | None], present: list[bool] | None = None) -> bytes:
    """The first values inserted; the first again and all others as the two images of updates."""
    stream = Primary()
    stream.gtid()
    body = table_map(1, columns)
    stream.event(EventType.TABLE_MAP, body)
    stream.event(INSERT, rows(1, len(columns), image(values[0])))
    if present is not None:
        held = [value for value, there in zip(values[0], present, strict=True) if there]
        stream.event(EventType.TABLE_MAP, body)
        stream.event(INSERT, rows(1, len(columns), image(held), before=present))
    for other in values[1:]:
        both = image(values[0]) + image(other)
        stream.event(EventType.TABLE_MAP, body)
        stream.event(UPDATE, rows(1, len(columns), both, after=[True] * len(columns)))
    stream.xid()
    return stream.binlog()


def shown(data: bytes, pattern: str) -> tuple[list[str], list[bool | None], list[list[str] | None]]:
    """The after images as JSON, which rows are history, and what the images lack."""
    tables = Tables({"d.t": None}, columns=ColumnMatcher(pattern.replace(".*", "*").split("|")))
    decoded = check_twin(data, tables, VARIANT)
    (after,) = decoded.after
    texts = [VariantUtils.to_json(v["value"], v["metadata"]) for v in after.to_pylist()]
    return texts, decoded.history, decoded.absent_after


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("id", ['{"id":7}', '{"id":7}']),
        ("name|size", ['{"Name":"x","size":null}', '{"Name":"y","size":2}']),
        ("s.*", ['{"size":null}', '{"size":2}']),
        ("nothing", ["{}", "{}"]),
    ],
)
def test_only_the_columns_asked_for_are_put_out(pattern: str, texts: list[str]) -> None:
    seven = struct.pack("<i", 7)
    data = stream_of([ID, NAME, SIZE], [seven, b"\1x", None], [seven, b"\1y", struct.pack("<i", 2)])
    assert shown(data, pattern)[0] == texts


def test_absent_names_are_of_columns_asked_for() -> None:
    seven = struct.pack("<i", 7)
    data = stream_of([ID, NAME, SIZE], [seven, b"\1x", seven], present=[True, False, False])
    assert shown(data, "id|name")[2] == [None, ["Name"]]
    assert shown(data, "id")[2] == [None, []]


def test_history_is_told_where_the_end_of_the_period_is_not_put_out() -> None:
    one = struct.pack("<i", 1)
    data = stream_of([ID, START, END], [one, NOW, NEVER], [one, NOW, NOW])
    for pattern, last in (("id", '{"id":1}'), ("row_start", None), ("id|row_end", None)):
        texts, history, _ = shown(data, pattern)
        assert history == [False, True]
        assert last is None or texts[1] == last


def test_a_column_that_nobody_can_decode_is_stepped_over() -> None:
    data = stream_of([ID, Column("g", 15, b"\x10\0", collation=9999)], [bytes(4), b"\1x"])
    assert shown(data, "id")[0] == ['{"id":0}']
    with pytest.raises(UnsupportedColumnError):
        shown(data, "id|g")
