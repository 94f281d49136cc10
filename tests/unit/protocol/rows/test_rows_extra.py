"""Extra information of rows events, version 2."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError, TruncatedError
from replica.protocol.constants import EventType
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import RowsEvent, RowsKind
from replica.protocol.rows.rows_event import RowsExtra, read_rows_extra
from tests.unit.protocol.events.decoding import decode_body
from tests.vectors.mysql.load import read


def test_partitions_of_real_tables() -> None:
    """Those that mysqlbinlog -vv shows for the same events."""
    events = [event for _, event in decode_file(read("partitions.binlog")) if isinstance(event, RowsEvent)]
    found = [(event.kind, event.extra.source_partition, event.extra.partition) for event in events]
    insert, update, delete = RowsKind
    assert found == [
        (insert, None, 0), (insert, None, 1), (insert, None, 2), (update, 0, 2), (update, 1, 1), (delete, None, 2),
        (insert, None, 1), (insert, None, 2), (insert, None, 4), (insert, None, 5),
        (update, 1, 2), (update, 2, 0), (update, 4, 5), (update, 5, 3),
    ]  # fmt: skip
    listing = read("partitions.vv").decode()
    for kind, source, target in found:
        shown = f"source_partition: {source} target_partition: {target}" if kind is update else f"partition: {target}"
        assert f"### Extra row info for partitioning: {shown}\n" in listing


def test_ndb_by_hand() -> None:
    """Type 0, length with itself and the format, format, data; no server with NDB was at hand."""
    assert read_rows_extra(bytes.fromhex("00 05 2a 010203")) == RowsExtra(ndb_format=0x2A, ndb=b"\1\2\3")
    both = read_rows_extra(bytes.fromhex("00 02 00 01 0700 0300"), update=True)
    assert both == RowsExtra(partition=7, source_partition=3, ndb_format=0, ndb=b"")
    event = decode_body(RowsEvent, EventType.WRITE_ROWS, "120000000000 0100 0800 00052a010203 02 03 fc 01000000")
    assert event.extra == RowsExtra(ndb_format=0x2A, ndb=b"\1\2\3")


def test_a_type_that_nobody_knows_ends_the_list() -> None:
    assert read_rows_extra(b"\1\2\0\7more") == RowsExtra(partition=2, unknown=b"\7more")
    assert read_rows_extra(b"") == RowsExtra()


@pytest.mark.parametrize("data", ["00", "0003", "000300", "01", "0101", "000500", "00ff0000"])
def test_truncated(data: str) -> None:
    with pytest.raises(TruncatedError):
        read_rows_extra(bytes.fromhex(data))


@pytest.mark.parametrize("data", ["0000", "0001"])
def test_ndb_shorter_than_its_own_head(data: str) -> None:
    with pytest.raises(ProtocolError, match="less than its own head"):
        read_rows_extra(bytes.fromhex(data))
