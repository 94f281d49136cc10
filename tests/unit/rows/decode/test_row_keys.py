"""The keys of table maps: those that are of the type that the catalog says, and those that are refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from replica.errors import KeyChangedError, SchemaError
from replica.protocol.constants import ColumnType as T
from replica.protocol.rows.table_map import ColumnDef
from replica.rows.decode.row_keys import RowKeys
from replica.schema.table import ColumnSchema


def declared(data_type: str, column_type: str = "", **more: Any) -> ColumnSchema:
    return ColumnSchema(name="k", data_type=data_type, column_type=column_type or data_type, **more)


def keys_of(column: ColumnSchema, unfit: dict[int, SchemaError] | None = None, **wire: Any) -> RowKeys:
    """The key of one table map with one column, `k`."""
    columns = (ColumnDef(**{"metadata": b"", "length": 4} | wire),)
    table = SimpleNamespace(
        name=("d", "t"),
        table_map=SimpleNamespace(columns=columns, database="d", table="t"),
        layout=SimpleNamespace(columns=[SimpleNamespace(name="k")]),
    )
    slots: Any = SimpleNamespace(records=[None], table=lambda _: table)
    return RowKeys(slots, lambda _: [column], unfit)


TEXT = declared("varchar", charset="latin1", collation="latin1_bin")


@pytest.mark.parametrize(
    ("column", "same", "other"),
    [
        (
            declared("decimal", "decimal(10,2)", precision=10, scale=2),
            {"type": T.NEWDECIMAL, "precision": 10, "scale": 2},
            {"scale": 4},
        ),
        (declared("datetime", fsp=1), {"type": T.DATETIME2, "length": 6, "fsp": 1}, {"fsp": 2}),
        (declared("int"), {"type": T.LONG, "unsigned": False}, {"unsigned": True}),
        (declared("int", unsigned=True), {"type": T.LONG, "unsigned": True}, {"unsigned": False}),
        (TEXT, {"type": T.VARCHAR, "collation": 8}, {"collation": 45}),
        (TEXT, {"type": T.VARCHAR, "collation": 47}, {"collation": 63}),
        (
            declared("enum", labels=("a",), charset="binary"),
            {"type": T.ENUM, "length": 1, "collation": 63},
            {"length": 2},
        ),
    ],
)
def test_another_type_of_the_same_name_is_refused(
    column: ColumnSchema, same: dict[str, Any], other: dict[str, Any]
) -> None:
    """Its values may take as many bytes, and mean other things."""
    assert keys_of(column, **same).wanted.all()
    with pytest.raises(KeyChangedError, match=r"rows of d\.t .* column k is .* in the binlog is different"):
        keys_of(column, **same | other)
    unfit: dict[int, SchemaError] = {}
    assert not keys_of(column, unfit, **same | other).wanted.any()
    assert isinstance(unfit[0], KeyChangedError)
