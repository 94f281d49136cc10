"""Rows of results become row images: the kernel gives what the plain twin gives, also for damaged rows."""

from __future__ import annotations

import ctypes
import mmap
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.native.arrays import address
from replica.protocol.rows.table_map import parse_table_map
from replica.snapshot.rows.kept_key import kept_key, key_bytes, key_parts
from replica.snapshot.rows.result_plan import RowOutcome, plan_result, refusal
from replica.snapshot.rows.result_rows import FIRST_ROWS, ResultRows
from replica.snapshot.rows.row_block import TableKey
from tests.kit.snapshot.plain_result_rows import PlainRow, RefusedRow, transcode_row
from tests.kit.snapshot.result_rows import CASES, ResultCase, counted, joined, row, stretch, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from replica.schema.table import TableSchema
    from replica.snapshot.connection.packets import RowStretch
    from replica.snapshot.rows.row_block import RowBlock

KEYS = [number for number, case in enumerate(CASES) if case.column.data_type not in {
    "float", "double", "tinytext", "longtext", "mediumblob", "point"}]  # fmt: skip
ID = next(case for case in CASES if case.column.name == "int_unsigned")


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[ResultCase], tuple[int, ...]]:
    """Some columns of all kinds, and those of them that are the key."""
    numbers = draw(st.lists(st.integers(0, len(CASES) - 1), min_size=1, max_size=14, unique=True))
    columns = [number for number, case in enumerate(numbers) if case in KEYS]
    key = draw(st.lists(st.sampled_from(columns), max_size=3, unique=True)) if columns else []
    return [CASES[number] for number in numbers], tuple(key)


def prepared(
    cases: Sequence[ResultCase], key: tuple[int, ...], expected: int = FIRST_ROWS
) -> tuple[TableSchema, ResultRows, Any, Any]:
    schema = table([case.column for case in cases])
    chosen = TableKey("PRIMARY", key, ordered=False) if key else None
    columns = [case.answered for case in cases]
    parts = key_parts(schema, chosen) if chosen else ()
    return schema, ResultRows(schema, chosen, columns, expected=expected), plan_result(schema, columns), parts


def rows_of(block: RowBlock) -> list[PlainRow]:
    return [PlainRow(block.image(i).tobytes(), block.key(i)) for i in range(block.rows)]


@settings(max_examples=150)
@given(st.data())
def test_the_kernel_makes_the_images_and_keys_of_the_twin(data: st.DataObject) -> None:
    cases, key = data.draw(tables())
    _, rows, plans, parts = prepared(cases, key)
    payloads = []
    for _ in range(data.draw(st.integers(1, 5))):
        values = [data.draw(case.values if i in key else st.none() | case.values) for i, case in enumerate(cases)]
        payloads.append(row(values))

    rows.add(stretch(*payloads))
    rows.add(joined(payloads[0]))

    assert rows_of(rows.block()) == [transcode_row(p, plans, parts) for p in (*payloads, payloads[0])]


def at_the_edge(found: RowStretch) -> RowStretch:
    """The same bytes at the end of memory that may be read: one read too far ends the process."""
    place = len(EDGE) - found.end
    EDGE[place:] = found.data[: found.end]
    return found._replace(data=EDGE[place:])


def edge() -> npt.NDArray[np.uint8]:
    """Memory before a page that no one may touch."""
    memory = mmap.mmap(-1, EDGE_BYTES + mmap.PAGESIZE)
    array = np.frombuffer(memory, np.uint8)
    mprotect = ctypes.CDLL(None, use_errno=True).mprotect
    nothing = ctypes.c_int(0)
    done = mprotect(ctypes.c_void_p(address(array) + EDGE_BYTES), ctypes.c_size_t(mmap.PAGESIZE), nothing)
    assert done == 0, os.strerror(ctypes.get_errno())
    return array[:EDGE_BYTES]


EDGE_BYTES = 1 << 20
EDGE = edge()


def refused(payload: bytes, plans: Any, parts: Any) -> tuple[RowOutcome, int] | PlainRow:
    try:
        return transcode_row(payload, plans, parts)
    except RefusedRow as refusal:
        return refusal.outcome, refusal.column


def by_kernel(rows: ResultRows, payload: bytes, plans: Any, *, whole: bool) -> tuple[RowOutcome, int] | PlainRow:
    try:
        rows.add(at_the_edge(joined(payload) if whole else stretch(payload)))
    except ProtocolError as error:
        names = [None, *(plan.name for plan in plans)]
        return next(
            (outcome, names.index(name) - 1)
            for outcome in RowOutcome
            for name in names
            if outcome > RowOutcome.TORN and str(error) == str(refusal(outcome, "d.t", 0, name))
        )
    return rows_of(rows.block())[0]


@settings(max_examples=150)
@given(st.data())
def test_damaged_rows_are_refused_as_the_twin_refuses_them(data: st.DataObject) -> None:
    cases, key = data.draw(tables())
    cases = [case._replace(column=replace(case.column, name=f"c{i}")) for i, case in enumerate(cases)]
    _, _, plans, parts = prepared(cases, key)
    payload = bytearray(row([data.draw(st.none() | case.values) for case in cases]))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))

    _, rows, _, _ = prepared(cases, key)
    whole = data.draw(st.booleans())
    assert by_kernel(rows, bytes(payload), plans, whole=whole) == refused(bytes(payload), plans, parts)


@settings(max_examples=40)
@given(st.data())
def test_every_truncation_is_refused_as_the_twin_refuses_it(data: st.DataObject) -> None:
    cases, key = data.draw(tables())
    cases = [case._replace(column=replace(case.column, name=f"c{i}")) for i, case in enumerate(cases)]
    _, _, plans, parts = prepared(cases, key)
    payload = row([data.draw(case.values) for case in cases])[:200]
    _, rows, _, _ = prepared(cases, key)
    for end in range(1, len(payload)):
        found = by_kernel(rows, payload[:end], plans, whole=bool(end & 1))
        assert found == refused(payload[:end], plans, parts)
        if isinstance(found, PlainRow):  # payloads of a value that is cut short to another are taken
            _, rows, _, _ = prepared(cases, key)


def test_a_packet_that_ends_too_early_is_refused() -> None:
    _, rows, _, _ = prepared([ID], ())
    whole = stretch(row([b"\1\0\0\0"]))
    for end in range(1, whole.end):
        with pytest.raises(ProtocolError, match="ends in the middle of a packet"):
            rows.add(whole._replace(end=end))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.column.name)
def test_null_of_each_type_takes_no_bytes(case: ResultCase) -> None:
    _, rows, plans, _ = prepared([case, ID], ())
    rows.add(stretch(row([None, b"\x08\0\0\0"])))
    block = rows.block()
    assert [column.name for column in parse_table_map(block.table_map).columns] == [plan.name for plan in plans]
    assert block.image(0).tobytes() == b"\xfd\x08\0\0\0"


@pytest.mark.parametrize("expected", [0, 3 * FIRST_ROWS, 1 << 40], ids=["none", "more", "far more"])
def test_room_grows_with_the_rows(expected: int) -> None:
    text = next(case for case in CASES if case.column.name == "longtext")
    blob = next(case for case in CASES if case.column.name == "varbinary_300")
    schema, rows, plans, parts = prepared([text, blob], (1,), expected)
    payloads = [row([counted(b"x" * (1000 + i)), counted(b"\0" * (i % 300))]) for i in range(2 * FIRST_ROWS + 5)]
    rows.add(stretch(*payloads))
    large = row([counted(b"y" * (9 << 20)), counted(b"k")])
    rows.add(joined(large))

    block = rows.block()
    assert block.rows == len(payloads) + 1
    for i in (0, FIRST_ROWS, len(payloads) - 1):
        assert PlainRow(block.image(i).tobytes(), block.key(i)) == transcode_row(payloads[i], plans, parts)
    assert block.image(block.rows - 1).tobytes() == transcode_row(large, plans, parts).image
    assert (rows.rows, rows.size) == (0, 0)
    assert rows.last_key() == kept_key(schema, TableKey("k", (1,), ordered=False), transcode_row(large, plans).image)


def test_a_wide_table_with_null_in_every_other_column() -> None:
    cases = [ID] * 1001
    _, rows, plans, _ = prepared(cases, ())
    payload = row([None if i % 2 else i.to_bytes(4, "little") for i in range(1001)])
    rows.add(stretch(payload))
    assert rows_of(rows.block()) == [transcode_row(payload, plans)]


def ordered_rows() -> tuple[TableSchema, TableKey, ResultRows]:
    schema = table([ID.column])
    key = TableKey("PRIMARY", (0,), ordered=True)
    return schema, key, ResultRows(schema, key, [ID.answered])


def number(value: int) -> bytes:
    return row([value.to_bytes(4, "little")])


@pytest.mark.parametrize(("first", "second"), [((1, 3), (2,)), ((1, 2, 2), ()), ((1,), (1,)), ((256,), (255,))])
@pytest.mark.parametrize("taken", [False, True])
def test_rows_of_an_ordered_key_have_to_come_in_its_order(
    first: tuple[int, ...], second: tuple[int, ...], *, taken: bool
) -> None:
    _, _, rows = ordered_rows()
    with pytest.raises(ProtocolError, match="does not sort after"):  # noqa: PT012
        rows.add(stretch(*map(number, first)))
        if taken:
            rows.block()
        rows.add(stretch(*map(number, second)))


def test_the_last_key_is_kept_and_read_again() -> None:
    schema, key, rows = ordered_rows()
    with pytest.raises(ValueError, match="no last key"):
        rows.last_key()
    rows.add(stretch(number(1), number(70_000)))
    kept = rows.last_key()
    block = rows.block()
    assert rows.last_key() == kept
    assert key_bytes(schema, key, kept) == block.key(1) == (70_000).to_bytes(4, "big")


def test_a_stretch_may_begin_anywhere() -> None:
    _, _, rows = ordered_rows()
    found = stretch(number(5), number(6))
    data = np.concatenate([np.full(9, 0xEE, np.uint8), found.data, np.full(9, 0xEE, np.uint8)])
    rows.add(found._replace(data=data, start=9, end=9 + found.end))
    assert rows.block().rows == 2
