"""Write event groups whose rows can be decoded: inserts into table d.t with one column `a INT`."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from replica.protocol.constants import EventType
from tests.kit.binlog import bodies
from tests.kit.binlog.rows import INSERT, Column, image, rows, table_map

if TYPE_CHECKING:
    from tests.kit.binlog.primary import Primary

COLUMN = Column("a", 3)
TABLE = table_map(1, [COLUMN])


def images(*values: int) -> bytes:
    return b"".join(image([struct.pack("<i", value)]) for value in values)


def insert(primary: Primary, *values: int, body: bytes = TABLE) -> None:
    """Table map and rows; `body` is that of another table map with the id 1."""
    primary.event(EventType.TABLE_MAP, body)
    primary.event(INSERT, rows(1, 1, images(*values)))


def transaction(primary: Primary, *values: int, body: bytes = TABLE) -> None:
    primary.gtid()
    insert(primary, *values, body=body)
    primary.xid()


def prepare(primary: Primary, name: str, *values: int, one_phase: bool = False) -> tuple[int, int]:
    """A prepared XA group; return where it begins and ends."""
    start = primary.begin(xa=name)
    insert(primary, *values)
    primary.query(b"XA END " + bodies.xa_text(bodies.xa_id(name)))
    primary.xa_prepared(name, one_phase=one_phase)
    return start, len(bytes(primary))
