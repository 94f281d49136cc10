"""Blocks of rows for tests of what keeps them: one INT column, which is the key."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from replica.snapshot.rows.row_block import RowBlock
from tests.kit.binlog.rows import Column, table_map

if TYPE_CHECKING:
    from collections.abc import Iterable

INT = 3


def int_map(table_id: int = 1, table: str = "t") -> bytes:
    return table_map(table_id, [Column("id", INT, nullable=False)], table=table)


def block_of(ids: Iterable[int], *, table_map: bytes | None = None) -> RowBlock:
    values = list(ids)
    images = b"".join(b"\xfe" + struct.pack("<i", value) for value in values)
    keys = b"".join(struct.pack(">I", (value & 0xFFFFFFFF) ^ 0x80000000) for value in values)
    return RowBlock(
        table_map or int_map(),
        1,
        np.frombuffer(images, np.uint8),
        np.arange(1, len(values) + 1, dtype=np.int64) * 5,
        np.frombuffer(keys, np.uint8),
        np.arange(1, len(values) + 1, dtype=np.int64) * 4,
    )


def ids_of(block: RowBlock) -> list[int]:
    return [struct.unpack_from("<i", block.image(row).tobytes(), 1)[0] for row in range(block.rows)]
