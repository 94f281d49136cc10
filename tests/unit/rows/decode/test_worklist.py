"""Operations, updates that change nothing, groups and filters: what is left is what a full decode has, less these rows.

The oracle decodes everything and leaves rows out afterwards, in Python; `last` is the last of the selected rows of its
transaction, whether or not a filter delivers it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.protocol.constants import EventType
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.tables.layout import TableTarget
from replica.rows.types.types import OutputColumn
from replica.schema.patterns import ColumnMatcher
from tests.kit.binlog import bodies
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map

if TYPE_CHECKING:
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.rows.decode.batch import Groups

COLUMNS = [Column("a", 3), Column("b", 15, struct.pack("<H", 40)), Column("c", 3)]
OUTPUT = [OutputColumn("a", pa.int32(), "INT"), OutputColumn("b", pa.string(), "STRING")]
KINDS = (INSERT, UPDATE, DELETE)
COMPRESSED = (
    EventType.WRITE_ROWS_COMPRESSED_V1,
    EventType.UPDATE_ROWS_COMPRESSED_V1,
    EventType.DELETE_ROWS_COMPRESSED_V1,
)

Row = tuple[int | None, str | None, int | None]


class Only(NamedTuple):
    """A resolver of d.t alone, or of all tables of the stream."""

    target: TableTarget
    others: TableTarget | None = None

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        return self.target if table_map.table == "t" else self.others


_rows = st.tuples(
    st.none() | st.integers(0, 1), st.none() | st.sampled_from(["", "x", "long enough"]), st.integers(0, 1)
)
_event = st.tuples(
    st.sampled_from("tu"),
    st.integers(0, 2),
    st.booleans(),
    st.lists(st.tuples(_rows, _rows), min_size=1, max_size=3),
)
_groups = st.lists(st.lists(_event, max_size=4), min_size=1, max_size=4)


def encoded(row: Row) -> bytes:
    number, text, other = row
    return image(
        [
            None if number is None else struct.pack("<i", number),
            None if text is None else bytes([len(text)]) + text.encode(),
            None if other is None else struct.pack("<i", other),
        ]
    )


def stream_of(groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]]) -> bytes:
    stream = Primary()
    for events in groups:
        stream.gtid()
        for table, op, compressed, pairs in events:
            number = 1 + "tu".index(table)
            stream.event(EventType.TABLE_MAP, table_map(number, COLUMNS, table=table))
            images = b"".join(encoded(b) + (encoded(a) if op == 1 else b"") for b, a in pairs)
            if compressed:
                images = bodies.block(images)
            kinds = COMPRESSED if compressed else KINDS
            stream.event(kinds[op], rows(number, 3, images, after=[True] * 3 if op == 1 else None))
        stream.xid()
    return bytes(stream)


def decoded(data: bytes, resolver: Only, only: object = None, *, shape: str = "envelope") -> list[tuple[object, ...]]:
    """(group, table, op, ordinal, before, after, last) of each row; batches of three rows end anywhere."""
    options = DecodeOptions(shape=shape, batch_rows=3)  # type: ignore[arg-type]
    decoder = RangeDecoder(resolver, options, None if shape == "variant" else OUTPUT)
    found: list[tuple[object, ...]] = []
    for batch in decoder.decode(data, checksum=True, only=only):  # type: ignore[arg-type]
        names = [batch.tables[number].table for number in batch.table]
        sides = [
            list(zip(*(column.to_pylist() for column in side), strict=True)) for side in (batch.before, batch.after)
        ]
        found += zip(
            batch.group.tolist(),
            names,
            batch.op.tolist(),
            batch.ordinal.tolist(),
            *sides,
            batch.last.tolist(),
            strict=True,
        )
    return found


def expected(
    everything: list[tuple[object, ...]], operations: int, delivered: int, groups: set[int], *, skip: bool
) -> list[tuple[object, ...]]:
    selected = [
        row
        for row in everything
        if row[1] == "t"
        and row[0] in groups
        and operations >> int(row[2]) & 1  # type: ignore[call-overload]
        and not (skip and row[2] == 1 and row[4] == row[5])
    ]
    last = {row[0]: row[3] for row in selected}
    return [
        (*row[:6], last[row[0]] == row[3])
        for row in selected
        if delivered >> int(row[2]) & 1  # type: ignore[call-overload]
    ]


@pytest.mark.parametrize("shape", ["envelope", "variant"])
@settings(max_examples=60)
@given(
    groups=_groups,
    operations=st.integers(1, 7),
    delivered=st.integers(1, 7),
    skip=st.booleans(),
    chosen=st.integers(0, 15),
)
def test_what_is_left_is_what_a_full_decode_has(
    shape: str,
    groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]],
    operations: int,
    delivered: int,
    chosen: int,
    *,
    skip: bool,
) -> None:
    data = stream_of(groups)
    columns = ColumnMatcher(["a", "b"]) if shape == "variant" else None
    whole = TableTarget(columns=columns)
    everything = decoded(data, Only(whole, whole), shape=shape)
    target = TableTarget(None, operations, delivered, columns, skip_unchanged=skip)

    def choose(found: Groups) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([chosen >> number & 1 for number in range(len(found))], np.bool_)

    wanted = {number for number in range(4) if chosen >> number & 1}
    assert decoded(data, Only(target), choose, shape=shape) == expected(
        everything, operations, delivered, wanted, skip=skip
    )


def partial(before: list[bool], after: list[bool], images: bytes) -> bytes:
    stream = Primary()
    stream.rows(table_map(1, COLUMNS), (UPDATE, rows(1, 3, images, before=before, after=after)))
    return bytes(stream)


def test_a_column_that_was_not_set_is_unchanged_and_one_without_its_old_value_is_changed() -> None:
    """binlog_row_image=MINIMAL logs the key before, and what the statement set after; FULL_NODUP what changed."""
    key, number = struct.pack("<i", 7), struct.pack("<i", 1)
    skip = Only(TableTarget(skip_unchanged=True))
    only_key = [True, False, False]
    set_c = partial(only_key, [False, False, True], image([key]) + image([number]))
    assert decoded(set_c, skip) == []  # c is not asked for, and nothing else was set
    set_b = partial(only_key, [False, True, False], image([key]) + image([b"\1x"]))
    assert [row[5] for row in decoded(set_b, skip)] == [(None, "x")]
    set_key = partial(only_key, only_key, image([key]) + image([key]))
    assert decoded(set_key, skip) == []


def test_where_no_column_is_read_every_update_comes() -> None:
    data = partial([True] * 3, [True] * 3, encoded((1, "x", 1)) * 2)
    decoder = RangeDecoder(Only(TableTarget(skip_unchanged=True)), DecodeOptions(shape="flat"), [])
    assert [batch.rows for batch in decoder.decode(data, checksum=True)] == [2]


@settings(max_examples=30)
@given(_groups)
def test_flat_rows_are_those_of_the_envelope(
    groups: list[list[tuple[str, int, bool, list[tuple[Row, Row]]]]],
) -> None:
    data = stream_of(groups)
    resolver = Only(TableTarget(None, skip_unchanged=True))
    rows_of_group = {(row[0], row[3]): row for row in decoded(data, resolver)}
    decoder = RangeDecoder(resolver, DecodeOptions(shape="flat", batch_rows=3), OUTPUT)
    found = []
    for batch in decoder.decode(data, checksum=True):
        found += zip(batch.group.tolist(), batch.ordinal.tolist(), batch.op.tolist(), batch.last.tolist(), strict=True)
    assert list(dict.fromkeys((group, ordinal) for group, ordinal, *_ in found)) == list(rows_of_group)
    assert [last for *_, op, last in found if op != 1] == [row[6] for row in rows_of_group.values()]
    assert not any(last for *_, op, last in found if op == 1)
