"""Images that are written out plain: compressed events, COMPRESSED columns, and slices of a worklist. Both decoders."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ProtocolError, ReplicaError
from replica.protocol.constants import ColumnType, EventType
from replica.protocol.rows.table_map import parse_table_map
from replica.rows.decode import images as images_module
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, count_rows
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from replica.schema.table import ColumnSchema, TableSchema
from tests.kit.binlog.bodies import block
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map
from tests.unit.rows.twin import Tables, check_twin, kernel_rows
from tests.vectors.load import HERE as VECTORS
from tests.vectors.load import VERSIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

Shape = Literal["envelope", "flat", "variant"]
SHAPES: tuple[Shape, ...] = ("envelope", "flat", "variant")
V1 = {INSERT: 166, UPDATE: 167, DELETE: 168}
V2 = {INSERT: 169, UPDATE: 170, DELETE: 171}
BINARY, UTF8MB4 = 63, 45

ID = Column("id", 3)
NAME = Column("name", 15, b"\xc8\0")
BLOB = Column("b", ColumnType.BLOB_COMPRESSED, b"\2", collation=BINARY)
TINY = Column("tiny", ColumnType.BLOB_COMPRESSED, b"\1", collation=UTF8MB4)
SHORT = Column("short", ColumnType.VARCHAR_COMPRESSED, b"\xff\0", collation=UTF8MB4)  # 254 bytes: one byte of length
LONG = Column("long", ColumnType.VARCHAR_COMPRESSED, b"\0\1", collation=8)  # latin1, 255 bytes: two bytes of length
STORED = [ID, BLOB, TINY, SHORT, NAME, LONG]
PREFIX = {"b": 2, "tiny": 1, "short": 1, "long": 2}
WANTED = Tables({"d.t": None})
V_T = TableSchema(
    database="v",
    table="t",
    columns=(
        ColumnSchema(name="a", data_type="int", column_type="int(11)", key=True),
        ColumnSchema(name="b", data_type="longtext", column_type="longtext", charset="latin1", octets=(1 << 32) - 1),
    ),
)
"""What the catalog says of the table in compression.sql, whose binlog has no row metadata."""


def packed(value: bytes, *, how: str = "raw") -> bytes:
    """A value as Field_longstr::compress leaves it."""
    if not value:
        return b""
    if how == "plain":
        return b"\0" + value
    stream = zlib.compressobj(wbits=-15 if how == "raw" else 15)
    size = 1 if len(value) < 256 else 2
    return (
        bytes([0x80 | (8 if how == "raw" else 0) | size])
        + len(value).to_bytes(size, "big")
        + stream.compress(value)
        + stream.flush()
    )


def counted(column: str, value: bytes | None) -> bytes | None:
    return None if value is None else len(value).to_bytes(PREFIX[column], "little") + value


def number(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def named(value: int, name: str) -> bytes:
    return image([number(value), bytes([len(name)]) + name.encode()])


def stored_row(value: int, text: bytes | None, how: str = "raw") -> bytes:
    stored = None if text is None else packed(text, how=how)
    return image(
        [
            number(value),
            counted("b", stored),
            counted("tiny", stored),
            counted("short", stored),
            b"\4name",
            counted("long", stored),
        ]
    )


def transaction(
    stream: Primary, events: Sequence[tuple[int, bytes]], columns: Sequence[Column], table: str = "t"
) -> None:
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, columns, table=table))
    for kind, body in events:
        stream.event(kind, body)
    stream.event(INSERT, rows(0xFFFFFF, 0, b""))
    stream.xid()


def compressed(
    op: int, width: int, images: bytes, codes: dict[int, int] = V1, **bitmaps: Sequence[bool]
) -> tuple[int, bytes]:
    if op == UPDATE:
        bitmaps.setdefault("after", [True] * width)
    body = rows(7, width, block(images), flags=0, **bitmaps)
    return codes[op], body if codes is V1 else body[:8] + b"\2\0" + body[8:]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("codes", [V1, V2], ids=["v1", "v2"])
def test_compressed_events_read_like_plain_ones(shape: Shape, codes: dict[int, int]) -> None:
    stream, plain = Primary(), Primary()
    many = [named(i, "x" * (i % 150)) for i in range(100)]
    images = {INSERT: b"".join(many), UPDATE: b"".join(many), DELETE: many[0]}
    transaction(stream, [compressed(op, 2, data, codes) for op, data in images.items()], [ID, NAME])
    bitmaps = {UPDATE: [True, True]}
    transaction(plain, [(op, rows(7, 2, d, after=bitmaps.get(op), flags=0)) for op, d in images.items()], [ID, NAME])
    options = DecodeOptions(shape=shape, batch_rows=7)
    found = check_twin(stream.binlog(), WANTED, options)
    assert found == check_twin(plain.binlog(), WANTED, options)
    assert len(found.ops) == (201 if shape == "flat" else 151)
    _, counts = count_rows(stream.binlog(), WANTED, checksum=True)
    assert counts.tolist() == [151]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("whole_event", [False, True], ids=["plain events", "compressed events"])
def test_compressed_columns_hold_what_was_written(shape: Shape, *, whole_event: bool) -> None:
    values = [b"", b"a", b"a" * 100, bytes(range(32, 127)), b"z" * 254, None]
    ways = ["raw", "zlib", "plain"]
    data = [
        stored_row(i, value, how)
        for i, value in enumerate(values)
        for how in ways
        if how != "plain" or value != values[4]
    ]

    def event(op: int, images: bytes) -> tuple[int, bytes]:
        if whole_event:
            return compressed(op, 6, images)
        return op, rows(7, 6, images, after=[True] * 6 if op == UPDATE else None, flags=0)

    stream = Primary()
    pairs = b"".join(a + b for a, b in zip(data, reversed(data), strict=True))
    transaction(stream, [event(INSERT, b"".join(data)), event(UPDATE, pairs), event(DELETE, data[2])], STORED)
    found = check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape, batch_rows=5))
    if shape == "envelope":
        expected = [value for i, value in enumerate(values) for how in ways if how != "plain" or value != values[4]]
        text = [None if value is None else value.decode() for value in expected]
        for column, wanted in ((1, expected), (2, text), (3, text), (5, text)):
            assert found.after[column].to_pylist()[: len(expected)] == wanted
        assert found.after[4].to_pylist()[0] == "name"
    assert count_rows(stream.binlog(), WANTED, checksum=True)[1].tolist() == [2 * len(data) + 1]


def test_columns_that_nobody_reads_are_never_inflated() -> None:
    bad = image([number(1), b"\3\0\x8a\xff\xff", b"\0", b"\0", b"\4name", None])
    stream = Primary()
    transaction(stream, [(INSERT, rows(7, 6, bad, flags=0))], STORED)
    output = check_outputs(stream, ["id", "name", "long"])
    assert [array.to_pylist() for array in output] == [[1], ["name"], [None]]
    with pytest.raises(ProtocolError, match=r"column b of d\.t: a compressed stream of 0 bytes claims"):
        check_outputs(stream, ["b"])


def check_outputs(stream: Primary, names: list[str]) -> list[object]:
    """The named columns of a stream's rows, from the kernels."""
    layout = compile_layout(parse_table_map(memoryview(table_map(7, STORED))), None, None, ValuePolicy())
    output = [next(column for column in layout.outputs if column.name == name) for name in names]
    return list(kernel_rows(stream.binlog(), RangeDecoder(WANTED, DecodeOptions(), output)).after)


def test_absent_columns_of_minimal_images() -> None:
    before, after = [True, False, False, True, False, False], [False, True, True, False, False, True]
    one, two = packed(b"q" * 90), packed(b"w" * 80)
    pair = image([number(5), counted("short", one)]) + image([counted("b", two), None, counted("long", two)])
    stream = Primary()
    for event in (
        (UPDATE, rows(7, 6, pair * 3, before=before, after=after, flags=0)),
        compressed(UPDATE, 6, pair * 3, before=before, after=after),
        compressed(DELETE, 6, image([number(5), counted("short", one)]), before=before),
    ):
        transaction(stream, [event], STORED)
    for shape in SHAPES:
        check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape))


def test_rows_of_other_tables_are_counted_through_compression() -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, [ID, NAME]))
    stream.event(EventType.TABLE_MAP, table_map(8, STORED, table="other"))
    other = rows(8, 6, block(stored_row(1, b"a" * 99) * 40), flags=0)
    stream.event(V1[INSERT], other)
    stream.event(*compressed(INSERT, 2, named(1, "a")))
    stream.event(V1[INSERT], other)
    stream.event(*compressed(INSERT, 2, named(2, "b") * 2))
    stream.event(V1[INSERT], other)
    stream.xid()
    for shape in SHAPES:
        found = check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape))
        assert found.ordinals == [40, 81, 82]
        assert found.last == [False, False, True]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("arena", [1, 100, 500])
def test_slices_change_nothing(shape: Shape, arena: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Primary()
    for group in range(4):
        events = [compressed(INSERT, 2, named(i, "n" * i) * (1 + i % 3)) for i in range(12)]
        events[5] = (INSERT, rows(7, 2, named(-1, "plain") * 2, flags=0))
        transaction(stream, events, [ID, NAME], table="t" if group != 2 else "u")
    whole = check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape))
    monkeypatch.setattr(images_module.Arena.__init__, "__defaults__", (arena,))
    sliced = check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape))
    assert sliced._replace(batches=0) == whole._replace(batches=0)
    assert sliced.batches > whole.batches
    counts = count_rows(stream.binlog(), WANTED, checksum=True)[1]
    assert counts.tolist() == [23, 23, 0, 23]


def test_a_decoder_goes_on_after_an_event_larger_than_the_arena(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module.Arena.__init__, "__defaults__", (1000,))
    stream = Primary()
    small, large = named(1, "a"), named(2, "b" * 200) * 50
    for data in (small, large, small, large, large, small):
        transaction(stream, [compressed(INSERT, 2, data)], [ID, NAME])
    found = check_twin(stream.binlog(), WANTED, DecodeOptions())
    assert [len(name) for name in found.after[1].to_pylist()] == [1, *[200] * 50, 1, *[200] * 100, 1]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ((166, rows(7, 2, b"\x80", flags=0)), "to the 0 bytes it claims"),
        ((166, rows(7, 2, b"\0\1\2", flags=0)), "does not start a block"),
        ((166, rows(7, 2, block(named(1, "a"), claimed=1 << 30), flags=0)), "no deflate stream can reach"),
        ((166, rows(7, 2, block(named(1, "a"), claimed=13), flags=0)), "does not inflate"),
        ((166, rows(7, 2, block(named(1, "a"))[:-3], flags=0)), "inflate"),
        (compressed(INSERT, 2, named(1, "a")[:-1]), "ends beyond its event"),
        (compressed(INSERT, 2, named(1, "a") + b"\xfc"), "ends beyond its event"),
        (compressed(INSERT, 3, named(1, "a")), "a different number of columns"),
        (compressed(INSERT, 2, named(1, "a"), before=[False, False]), "without any column"),
    ],
)
def test_damage_is_told_with_its_event(event: tuple[int, bytes], words: str) -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, [ID, NAME]))
    stream.event(*compressed(INSERT, 2, named(1, "a")))
    at = stream.event(*event)
    stream.xid()
    for run in (
        lambda: list(RangeDecoder(WANTED, DecodeOptions(shape="variant")).decode(bytes(stream), checksum=True)),
        lambda: count_rows(bytes(stream), WANTED, checksum=True),
    ):
        with pytest.raises(ProtocolError, match=words) as caught:
            run()
        assert "d.t" in str(caught.value)
        assert caught.value.offset in range(at, len(bytes(stream)))
        assert caught.value.hint


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ((INSERT, rows(7, 6, stored_row(1, b"abc")[:-1], flags=0)), "ends beyond its event"),
        ((INSERT, rows(7, 5, stored_row(1, b"abc"), flags=0)), "a different number of columns"),
        ((INSERT, rows(7, 6, b"\xff", before=[False] * 6, flags=0)), "without any column"),
        ((UPDATE, rows(7, 6, stored_row(1, b"abc"), after=[True] * 6, flags=0)), "ends beyond its event"),
        ((INSERT, rows(7, 6, stored_row(1, b"a" * 300)[:-4] + b"....", flags=0)), r"column \w+ of d\.t: a compressed"),
        (
            (INSERT, rows(7, 6, stored_row(1, b"a" * 255), flags=0)),
            r"column short of d\.t: .* claims 255 bytes; at most 254",
        ),
    ],
)
def test_damage_in_compressed_columns(event: tuple[int, bytes], words: str) -> None:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, STORED))
    at = stream.event(*event)
    stream.xid()
    with pytest.raises(ProtocolError, match=words) as caught:
        list(RangeDecoder(WANTED, DecodeOptions(shape="variant")).decode(bytes(stream), checksum=True))
    assert (caught.value.offset, bool(caught.value.hint)) == (at, True)


def test_an_event_that_grows_too_far_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images_module, "MAX_IMAGES_BYTES", 2000)
    stream = Primary()
    transaction(stream, [(INSERT, rows(7, 6, stored_row(1, b"a" * 254) * 3, flags=0))], STORED)
    with pytest.raises(ProtocolError, match="take more than 2000 bytes"):
        list(RangeDecoder(WANTED, DecodeOptions(shape="variant")).decode(bytes(stream), checksum=True))


def test_memory_is_the_arena_whatever_the_range_inflates_to() -> None:
    columns = [ID, Column("t", 252, b"\4", collation=BINARY)]
    megabyte = image([number(1), struct.pack("<I", 1 << 20) + bytes(1 << 20)])

    def decode(transactions: int) -> int:
        stream = Primary()
        for _ in range(transactions):
            transaction(stream, [compressed(INSERT, 2, megabyte)], columns)
        decoder = RangeDecoder(WANTED, DecodeOptions(shape="variant", reuse_buffers=True))
        return sum(batch.rows for batch in decoder.decode(bytes(stream), checksum=True))

    decode(1)  # kernels that no test before this one needed are compiled or loaded here
    tracemalloc.start()
    try:
        counted_rows = decode(64)
        assert tracemalloc.get_traced_memory()[1] < 40 << 20
    finally:
        tracemalloc.stop()
    assert counted_rows == 64


@settings(max_examples=60)
@given(
    texts=st.lists(st.none() | st.text(max_size=60).map(str.encode), min_size=1, max_size=12),
    how=st.sampled_from(["raw", "zlib", "plain"]),
    whole_event=st.booleans(),
    shape=st.sampled_from(SHAPES),
)
def test_random_values(texts: list[bytes | None], how: str, shape: Shape, *, whole_event: bool) -> None:
    images = b"".join(stored_row(i, text, how) for i, text in enumerate(texts))
    stream = Primary()
    event = compressed(INSERT, 6, images) if whole_event else (INSERT, rows(7, 6, images, flags=0))
    transaction(stream, [event], STORED)
    check_twin(stream.binlog(), WANTED, DecodeOptions(shape=shape))


def sample() -> tuple[bytes, int]:
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, table_map(7, STORED))
    at = stream.event(UPDATE, rows(7, 6, stored_row(1, b"a" * 90) + stored_row(2, b"b", "plain"), after=[True] * 6))
    stream.event(EventType.TABLE_MAP, table_map(7, STORED))
    stream.event(*compressed(INSERT, 6, stored_row(1, b"a" * 90)))
    stream.xid()
    return bytes(stream), at


SAMPLE, SAMPLE_ROWS = sample()


@settings(max_examples=400)
@given(
    damage=st.lists(st.tuples(st.integers(SAMPLE_ROWS, len(SAMPLE) - 1), st.integers(0, 255)), min_size=1, max_size=4)
)
def test_no_damage_makes_anything_but_a_typed_error(damage: list[tuple[int, int]]) -> None:
    data = bytearray(SAMPLE)
    for offset, byte in damage:
        data[offset] = byte
    try:
        kernel_rows(bytes(data), RangeDecoder(WANTED, DecodeOptions(shape="variant")))
    except ReplicaError as error:
        assert "\n" not in str(error)  # noqa: PT017  (some damage is none)


# -- as real servers wrote them ----------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_compressed_events(version: str, shape: Shape) -> None:
    data = (VECTORS / version / "compression.binlog").read_bytes()
    found = check_twin(data, Tables({"v.t": V_T}), DecodeOptions(shape=shape))
    if shape == "envelope":
        texts = ["short", "short", "long " * 100, "x" * 70_000, "long " * 100 + "!", "x" * 70_000 + "!", None, None]
        assert found.after[1].to_pylist() == texts
    assert count_rows(data, Tables({"v.t": V_T}), checksum=True)[1].sum() == 8


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_compressed_columns(version: str, shape: Shape) -> None:
    data = (VECTORS / version / "metadata_full.binlog").read_bytes()
    found = check_twin(data, Tables({"v.1.compressed_columns": None}), DecodeOptions(shape=shape))
    if shape == "envelope":
        assert [array.to_pylist() for array in found.after] == [["a" * 300], [b"abc"]]
