from __future__ import annotations

import pytest

from replica.errors import ProtocolError
from replica.protocol.constants import ColumnType
from replica.protocol.rows.table_map import ColumnDef
from replica.rows.tables.layout import StoredColumns
from replica.rows.tables.plan import plan_column, skip_column
from replica.rows.types.types import ValuePolicy

T = ColumnType
INTEGER = ColumnDef(type=T.LONG, metadata=b"", length=4, name="i", unsigned=False)
BLOB = ColumnDef(type=T.BLOB_COMPRESSED, metadata=b"\3", length=3, name="b", collation=63)
TINY = ColumnDef(type=T.BLOB_COMPRESSED, metadata=b"\1", length=1, name="tiny", collation=45)
SHORT = ColumnDef(type=T.VARCHAR_COMPRESSED, metadata=b"\xff\0", length=255, name="s", collation=45)
LONG = ColumnDef(type=T.VARCHAR_COMPRESSED, metadata=b"\0\1", length=256, name="l", collation=63)
JSON = ColumnDef(type=T.JSON, metadata=b"\4", length=4, name="j")
COLUMNS = (INTEGER, BLOB, TINY, SHORT, LONG, JSON)


def stored(*wanted: str) -> StoredColumns:
    plans = [
        plan_column(column, None, ValuePolicy()) if column.name in wanted else skip_column(column, column.name or "")
        for column in COLUMNS
    ]
    return StoredColumns(COLUMNS, plans)


def test_only_columns_that_are_read_are_rewritten() -> None:
    found = stored("i", "b", "s")
    assert found.marks.tolist() == [0, 1, 0, 1, 0, 0]
    assert list(found.unpack) == [1, 3]
    assert not stored("i")
    assert stored("j")


@pytest.mark.parametrize("wanted", [(), ("i", "b", "tiny", "s", "l", "j")])
def test_widths_are_those_of_the_log_whatever_is_read(wanted: tuple[str, ...]) -> None:
    assert stored(*wanted).widths.tolist() == [4, -3, -1, -1, -2, -4]


def test_plain_values_come_behind_four_bytes_and_others_as_they_are() -> None:
    plans = [plan_column(column, None, ValuePolicy()) for column in COLUMNS]
    assert [plan.prefix for plan in plans] == [0, 4, 4, 4, 4, 4]
    assert [skip_column(column, "x").prefix for column in COLUMNS] == [0, 3, 1, 1, 2, 4]


def test_values_are_unpacked_within_what_their_type_holds() -> None:
    unpack = stored("b", "tiny", "s", "l", "j").unpack
    assert bytes(unpack[1](memoryview(b"\0abc"))) == b"abc"
    assert bytes(unpack[5](memoryview(b"\5\xff\xff"))) == b"-1"
    for column, longest in ((2, 255), (3, 254), (4, 255)):
        with pytest.raises(ProtocolError, match=f"claims {longest + 1} bytes; at most {longest} are possible"):
            unpack[column](memoryview(b"\x8a" + (longest + 1).to_bytes(2, "big") + b"stream"))
