"""Definitions that change where no DDL says so: every row with the columns that it was written with, in order."""

from __future__ import annotations

import struct
from itertools import groupby
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType, EventType
from replica.readers.arrow import decode_files
from tests.kit.binlog.primary import NONE, Primary
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map

if TYPE_CHECKING:
    from pathlib import Path

OLD = (Column("id", ColumnType.LONG),)
NEW = (*OLD, Column("more", ColumnType.LONG))


def transaction(primary: Primary, columns: tuple[Column, ...], first: int, count: int = 1) -> None:
    """Rows id, id + 1, …; what else the table has is twice as much."""
    primary.gtid()
    primary.event(EventType.TABLE_MAP, table_map(len(columns), columns))
    images = b"".join(
        image([struct.pack("<i", number * times) for times in range(1, len(columns) + 1)])
        for number in range(first, first + count)
    )
    primary.event(INSERT, rows(len(columns), len(columns), images))
    primary.xid()


def test_each_row_has_the_columns_it_was_written_with(tmp_path: Path) -> None:
    primary = Primary()
    for number, columns in enumerate((OLD, OLD, NEW, OLD, NEW, NEW)):
        transaction(primary, columns, number)
    file = tmp_path / "bin.000001"
    file.write_bytes(primary.binlog())
    batches = list(decode_files([file], "d.t"))
    found = [
        (batch.schema.field("after").type.num_fields, row["after"]) for batch in batches for row in batch.to_pylist()
    ]
    assert [fields for fields, _ in groupby(fields for fields, _ in found)] == [1, 2, 1, 2]
    assert [row for _, row in found] == [
        {"id": 0}, {"id": 1}, {"id": 2, "more": 4}, {"id": 3}, {"id": 4, "more": 8}, {"id": 5, "more": 10},
    ]  # fmt: skip


def test_a_batch_stays_as_it_is_when_others_follow(tmp_path: Path) -> None:
    primary = Primary()
    transaction(primary, NEW, 0, count=50_000)
    file = tmp_path / "bin.000001"
    file.write_bytes(primary.binlog())
    kept, copies = [], []
    for batch in decode_files([file], "d.t"):
        kept.append(batch)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        copies.append(sink.getvalue())
    assert len(kept) > 2
    for batch, copy in zip(kept, copies, strict=True):
        assert pa.ipc.open_stream(copy).read_next_batch().equals(batch)
    assert pa.Table.from_batches(kept)["last"].to_pylist() == [False] * 49_999 + [True]


def test_rows_before_damage_come_first_and_the_error_names_file_and_place(tmp_path: Path) -> None:
    primary = Primary(NONE)
    transaction(primary, OLD, 1)
    primary.gtid()
    primary.event(EventType.TABLE_MAP, table_map(1, OLD))
    damaged = primary.event(INSERT, rows(1, 1, image([b"\x01\x02"])))
    primary.xid()
    file = tmp_path / "bin.000001"
    content = primary.binlog()
    file.write_bytes(content)
    given: list[dict[str, int]] = []
    with pytest.raises(ProtocolError, match=r"^bin\.000001: ") as caught:
        given.extend(row for batch in decode_files([file], "d.t") for row in batch["after"].to_pylist())
    assert given == [{"id": 1}]
    begin = len(content) - len(bytes(primary)) + damaged
    assert caught.value.offset is not None
    assert begin <= caught.value.offset < len(content)


def test_events_without_the_end_of_their_transaction_give_no_rows(tmp_path: Path) -> None:
    primary = Primary()
    transaction(primary, OLD, 1)
    transaction(primary, OLD, 2)
    content = primary.binlog()
    file = tmp_path / "bin.000001"
    file.write_bytes(content[: -len(primary.events[-1])])
    batches = list(decode_files([file], "d.t"))
    assert [row for batch in batches for row in batch["after"].to_pylist()] == [{"id": 1}]
