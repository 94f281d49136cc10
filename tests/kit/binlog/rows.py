"""Write table maps and rows events: their bodies, from columns and the bytes of values."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from replica.protocol.constants import ColumnType, EventType

if TYPE_CHECKING:
    from collections.abc import Sequence

INSERT, UPDATE, DELETE = EventType.WRITE_ROWS_V1, EventType.UPDATE_ROWS_V1, EventType.DELETE_ROWS_V1
KINDS = (INSERT, UPDATE, DELETE)
COMPRESSED = (
    EventType.WRITE_ROWS_COMPRESSED_V1,
    EventType.UPDATE_ROWS_COMPRESSED_V1,
    EventType.DELETE_ROWS_COMPRESSED_V1,
)
"""The same three, compressed."""
STMT_END = 1
_NUMERIC = {1, 2, 3, 4, 5, 8, 9, 13, 246}
_CHARACTER = {254, 15, 252, 255, 140, 141}
_LABELS = {0xF7: 6, 0xF8: 5}


@dataclass(frozen=True)
class Column:
    """A column as FULL row metadata tells it; `metadata` as it stands in the table map."""

    name: str
    code: int
    metadata: bytes = b""
    unsigned: bool = False
    collation: int = 45
    labels: tuple[bytes, ...] = ()
    nullable: bool = True

    @property
    def has_labels(self) -> bool:
        return self.code == ColumnType.STRING and self.metadata[0] in _LABELS


def lenenc(number: int) -> bytes:
    return bytes([number]) if number < 251 else b"\xfc" + struct.pack("<H", number)


def counted(text: bytes) -> bytes:
    return lenenc(len(text)) + text


def table_map(table_id: int, columns: Sequence[Column], *, table: str = "t", database: str = "d") -> bytes:
    """The body of a TABLE_MAP event with FULL row metadata."""
    metadata = b"".join(column.metadata for column in columns)
    unsigned = [column.unsigned for column in columns if column.code in _NUMERIC]
    unsigned += [False] * (-len(unsigned) % 8)
    signs = bytes(
        sum(bit << (7 - i) for i, bit in enumerate(unsigned[at : at + 8])) for at in range(0, len(unsigned), 8)
    )
    text = [c for c in columns if c.code in _CHARACTER and not c.has_labels]
    labelled = [c for c in columns if c.has_labels]
    optional = {
        1: signs,
        3: b"".join(lenenc(c.collation) for c in text),
        4: b"".join(counted(c.name.encode()) for c in columns),
        11: b"".join(lenenc(c.collation) for c in labelled),
    }
    for real, kind in _LABELS.items():
        optional[kind] = b"".join(
            lenenc(len(c.labels)) + b"".join(map(counted, c.labels)) for c in labelled if c.metadata[0] == real
        )
    return b"".join(
        (
            table_id.to_bytes(6, "little"),
            struct.pack("<H", 1),
            *(bytes([len(name)]) + name + b"\0" for name in (database.encode(), table.encode())),
            lenenc(len(columns)),
            bytes(column.code for column in columns),
            counted(metadata),
            bits([column.nullable for column in columns]),
            *(bytes([kind]) + counted(value) for kind, value in optional.items() if value),
        )
    )


def bits(flags: Sequence[bool]) -> bytes:
    """A bit set, least significant bit first, its unused bits set as the server sets them."""
    padded = [*flags, *[True] * (-len(flags) % 8)]
    return bytes(sum(flag << i for i, flag in enumerate(padded[at : at + 8])) for at in range(0, len(padded), 8))


def image(values: Sequence[bytes | None]) -> bytes:
    """A row image of the present columns' bytes, None for NULL."""
    return bits([value is None for value in values]) + b"".join(value for value in values if value is not None)


def rows(
    table_id: int,
    width: int,
    images: bytes,
    *,
    before: Sequence[bool] | None = None,
    after: Sequence[bool] | None = None,
    flags: int = STMT_END,
) -> bytes:
    """The body of a rows event; `after` for an UPDATE only."""
    present = bits(before or [True] * width) + (bits(after) if after else b"")
    return table_id.to_bytes(6, "little") + struct.pack("<H", flags) + lenenc(width) + present + images
