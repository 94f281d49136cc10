"""The SELECT of a chunk, and how large the next one is."""

from __future__ import annotations

import pytest

from replica.schema.table import ColumnSchema, TableSchema
from replica.schema.text.naming import quoted_table
from replica.snapshot.frontier import NOTHING
from replica.snapshot.rows.chunk import (
    FIRST_ROWS,
    ReadTable,
    after_key,
    chunk_sql,
    largest_sql,
    next_rows,
    starts,
    up_to,
)
from replica.snapshot.rows.row_block import TableKey


def table(*key: int) -> ReadTable:
    columns = tuple(ColumnSchema(name=name, data_type="int", column_type="int(11)") for name in ("a", "b", "c`"))
    return ReadTable(TableSchema(database="d", table="t`t", columns=columns), TableKey("PRIMARY", key, ordered=True))


def test_names_are_quoted() -> None:
    assert quoted_table(("d", "a`b")) == "`d`.`a``b`"


def test_a_composite_key_is_expanded() -> None:
    assert after_key(["a"], ["1"]) == "a > 1"
    assert up_to(["a"], ["1"]) == "a <= 1"
    assert after_key(["a", "b", "c"], ["1", "2", "3"]) == "(a > 1) OR (a = 1 AND b > 2) OR (a = 1 AND b = 2 AND c > 3)"
    assert up_to(["a", "b"], ["1", "2"]) == "(a < 1) OR (a = 1 AND b <= 2)"


def test_a_chunk_is_read_in_key_order_behind_a_key() -> None:
    base = "SELECT `a` FROM `d`.`t``t` FORCE INDEX (`PRIMARY`)"
    assert chunk_sql(table(1), "`a`", 7) == f"{base} ORDER BY `b` LIMIT 7"
    assert chunk_sql(table(1, 2), "`a`", 7, begin=["1", "x''"]) == (
        f"{base} WHERE ((`b` > 1) OR (`b` = 1 AND `c``` > x'')) ORDER BY `b`, `c``` LIMIT 7"
    )
    assert chunk_sql(table(0), "`a`", 7, begin=["1"], end=["9"]) == (
        f"{base} WHERE (`a` > 1) AND (`a` <= 9) ORDER BY `a` LIMIT 7"
    )


def test_the_largest_key_is_the_first_one_read_downwards() -> None:
    base = "SELECT `a` FROM `d`.`t``t` FORCE INDEX (`PRIMARY`)"
    assert largest_sql(table(1, 2), "`a`") == f"{base} ORDER BY `b` DESC, `c``` DESC LIMIT 1"


@pytest.mark.parametrize(
    ("rows", "read", "size", "seconds", "wanted"),
    [
        (FIRST_ROWS, 0, 0, 0.1, FIRST_ROWS),  # nothing is known
        (1_000, 1_000, 100_000, 0.001, 8_000),  # fast and narrow: it grows, by steps
        (1_000, 1_000, 100_000, 1.0, 500),  # slow: half a second
        (1_000, 1_000, 32 << 20, 0.001, 1_000),  # as wide as may be
        (1_000, 10, 32 << 20, 0.001, 10),
        (80_000, 80_000, 100_000, 0.001, 100_000),
        (1, 1, 1 << 30, 100.0, 1),
    ],
)
def test_the_next_chunk_fits_the_time_and_the_size(
    rows: int, read: int, size: int, seconds: float, wanted: int
) -> None:
    assert next_rows(rows, read, size, seconds, most_rows=100_000, most_bytes=32 << 20) == wanted


def test_the_first_chunk_has_no_lower_border() -> None:
    assert starts(NOTHING)
    assert not starts(b"\x01\x00a")
