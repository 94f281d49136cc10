"""Memory for records is given again, but for what only a large range needs; what stood in it before means nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from replica.protocol.constants import EventType
from replica.rows.scan.records import EventRecord, GroupRecord
from replica.rows.scan.scan import KEPT_BYTES, RecordMemory, scan_until
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import DELETE, INSERT, UPDATE, Column, image, rows, table_map

if TYPE_CHECKING:
    from replica.native.record import Records

ONE = image([b"\x01\0\0\0"])


def test_it_is_that_of_the_scan_before_unless_it_was_smaller_or_is_too_large_to_keep() -> None:
    memory = RecordMemory()
    first = memory.take("groups", GroupRecord.dtype, 100)
    assert np.shares_memory(memory.take("groups", GroupRecord.dtype, 50), first)
    assert not np.shares_memory(memory.take("events", EventRecord.dtype, 50), first)
    assert len(memory.take("groups", GroupRecord.dtype, 200)) == 200
    large = KEPT_BYTES // GroupRecord.BYTES + 1
    kept = memory.take("groups", GroupRecord.dtype, large)
    assert not np.shares_memory(memory.take("groups", GroupRecord.dtype, large), kept)


@pytest.mark.parametrize("left_over", [0xFF, 0x01])
def test_each_field_of_each_record_is_written_by_the_scan_itself(left_over: int) -> None:
    found = _records(left_over)
    clean = _records(0)
    assert len(clean[0]) == 5
    assert len(clean[1]) == 4
    for records, expected in zip(found, clean, strict=True):
        assert records.tolist() == expected.tolist()


def _records(left_over: int) -> tuple[Records, Records]:
    """Groups of every kind, scanned into memory that holds something."""
    stream = Primary(checksum=True)
    for op in (INSERT, UPDATE, DELETE):
        stream.gtid()
        stream.event(EventType.TABLE_MAP, table_map(7, [Column("id", 3)]))
        stream.event(op, rows(7, 1, ONE * (2 if op == UPDATE else 1), after=[True] if op == UPDATE else None))
        stream.xid()
    stream.gtid(flags=1)
    stream.query(b"CREATE TABLE t (a INT)")
    stream.gtid()
    stream.event(EventType.ANNOTATE_ROWS, b"insert into t values (1)")
    stream.event(EventType.TABLE_MAP, table_map(8, [Column("id", 3)]))
    stream.event(INSERT, rows(8, 1, ONE * 3))
    stream.query(b"COMMIT")
    memory = RecordMemory()
    for name, dtype in (("groups", GroupRecord.dtype), ("events", EventRecord.dtype)):
        memory.take(name, dtype, 1000).view(np.uint8)[:] = left_over
    found, error = scan_until(bytes(stream), checksum=True, memory=memory)
    assert error is None
    return found.groups, found.events
