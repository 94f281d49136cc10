"""`--json` writes what the reference decoder reads, value by value."""

from __future__ import annotations

import io
import json
import struct
from datetime import timedelta
from decimal import Decimal
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from replica.commands.dump.outputs.human import HumanDump
from replica.commands.dump.outputs.json_lines import write_json_rows
from replica.commands.dump.outputs.sql import SqlDump
from replica.commands.dump.rows.kernel_values import EXACT_IN_JSON
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.rows.rows_event import RowsEvent, RowsKind
from replica.protocol.rows.table_map import TableMapEvent
from replica.protocol.rows.values import format_time
from replica.rows.tables.layout import compile_layout
from replica.rows.types.kinds import Kind
from replica.rows.types.types import ValuePolicy
from tests.kit.oracle.images import plain_rows
from tests.kit.oracle.rows import read_rows
from tests.kit.some import some
from tests.unit.commands.dump.files import reading, said, vector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.rows.tables.plan import ColumnPlan

TEXT = ValuePolicy("text")
OPS = {RowsKind.INSERT: "insert", RowsKind.UPDATE: "update", RowsKind.DELETE: "delete"}
VERSIONS = ("10.5", "10.11", "11.8")


def rows(*files: Any, **more: Any) -> list[dict[str, Any]]:
    out = io.BytesIO()
    image = more.pop("image", "both")
    write_json_rows(reading(files, **more), out, image=image)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def plain(value: Any, plan: ColumnPlan) -> Any:
    """A value of the reference decoder as JSON is to hold it."""
    if plan.kind == Kind.YEAR:
        return f"{value:04}" if value is not None else None
    if isinstance(value, timedelta):
        return format_time(value, plan.fsp)
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return {"hex": value.hex().upper()}
    if isinstance(value, int) and abs(value) > EXACT_IN_JSON:
        return str(value)
    return value


def reference(version: str, stem: str) -> Iterator[tuple[str, str, Any, Any]]:
    maps = {}
    for _, event in decode_file(vector(f"{version}/{stem}").read_bytes()):
        if isinstance(event, TableMapEvent):
            maps[event.table_id] = event, compile_layout(event, None, None, TEXT)
        elif isinstance(event, RowsEvent):
            table_map, layout = maps[event.table_id]
            plans = {plan.name: plan for plan in layout.columns}
            for change in read_rows(plain_rows(event, table_map.columns, layout), layout, TEXT):
                images = [
                    None if image is None else {name: plain(value, plans[name]) for name, value in image.items()}
                    for image in (change.before, change.after)
                ]
                yield OPS[change.kind], layout.table, images[0], images[1]


def by_name(value: Any, expected: Any) -> bool:
    """UUID, INET and VECTOR are known from the DDL in the file; the table map alone tells bytes."""
    if not isinstance(value, str | list) or not isinstance(expected, dict):
        return False
    if isinstance(value, list):
        packed = struct.pack(f"<{len(value)}f", *value)
    else:
        packed = UUID(value).bytes if len(value) == 36 else ip_address(value).packed
    return expected == {"hex": packed.hex().upper()}


def float32(value: Any, expected: Any) -> bool:
    """FLOAT has fewer digits in text than as the double that equals it."""
    return isinstance(value, float) and isinstance(expected, float) and abs(value - expected) <= abs(value) * 1e-6


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_are_those_of_the_reference_decoder(version: str) -> None:
    found = rows(vector(f"{version}/metadata_full"))
    expected = list(reference(version, "metadata_full"))
    assert len(found) == len(expected) >= 20
    for row, (op, table, before, after) in zip(found, expected, strict=True):
        assert (row["op"], row["table"]) == (op, table)
        for image, wanted in ((row["before"], before), (row["after"], after)):
            if wanted is None:
                assert image is None
                continue
            assert list(image) == list(wanted)
            for name, value in wanted.items():
                found_value = image[name]
                assert found_value == value or float32(found_value, value) or by_name(found_value, value), name


def test_identity_and_place() -> None:
    first = rows(vector("11.8/metadata_full"))[0]
    assert list(first)[:5] == ["gtid", "ordinal", "commit_time", "file", "position"]
    assert first["gtid"] == "0-1-3"
    assert first["ordinal"] == 0
    assert first["commit_time"] == "2023-11-14 22:13:20"
    assert first["file"] == "metadata_full.binlog"
    assert first["position"] == 740


def test_absent_is_not_null() -> None:
    found = rows(vector("11.8/minimal_image"), patterns=["v.keyed"])
    partial = found[2]
    assert partial["after"] == {"id": 3, "b": None}
    update = found[3]
    assert update["before"] == {"id": 1}
    assert update["after"] == {"a": 11}


def test_old_versions_of_rows_are_told_from_current_ones() -> None:
    found = rows(vector("11.8/metadata_full"), patterns=["`v.1`.versioned"])
    assert [row["history"] for row in found] == [False, False, True]
    assert "history" not in rows(vector("11.8/metadata_full"), patterns=["`v.1`.signs"])[0]


@pytest.mark.parametrize(("image", "present", "missing"), [("before", "before", "after"), ("after", "after", "before")])
def test_one_image(image: str, present: str, missing: str) -> None:
    for row in some(rows(vector("11.8/minimal_image"), patterns=["v.keyed"], image=image)):
        assert present in row
        assert missing not in row
        assert (row[present] is None) == (row["op"] == {"before": "insert", "after": "delete"}[image])


def test_tables_are_chosen_by_patterns() -> None:
    tables = {row["table"] for row in rows(vector("11.8/minimal_image"), patterns=["v.k*", "v.one"])}
    assert tables == {"keyed", "keyless", "one"}


def test_rows_of_xa_transactions_come_where_they_are_committed() -> None:
    found = [row for row in rows(vector("11.8/transactions")) if row["table"] == "t"]
    by_key = {row["after"]["a"]: row["gtid"] for row in found if row["op"] == "insert"}
    assert by_key[11] == "0-1-14"
    assert 12 not in by_key, "rolled back"
    assert [row["after"]["a"] for row in found].index(11) > [row["after"]["a"] for row in found].index(13)


def test_names_come_from_ddl_in_the_files() -> None:
    read = reading([vector("11.8/transactions")], patterns=["v.t"])
    out = io.BytesIO()
    write_json_rows(read, out)
    assert b'"after":{"a":1,"b":"kept"}' in out.getvalue()
    assert said(read) == ""


def test_without_any_names_columns_are_numbered_and_it_is_said() -> None:
    read = reading([vector("11.8/rotation.2")])
    out = io.BytesIO()
    write_json_rows(read, out)
    assert '"@1":' in out.getvalue().decode()
    assert "v.t: its columns are called @1, @2, …" in said(read)
    assert read.notices.exit_code == 0


@pytest.mark.parametrize(
    "write",
    [
        write_json_rows,
        lambda read, out: HumanDump(read, out, only_rows=True).write(),
        lambda read, out: SqlDump(read, out, only_rows=True).write(),
    ],
    ids=["json", "people", "sql"],
)
def test_changes_without_rows_are_said_at_the_end(write: Any) -> None:
    read = reading([vector("11.8/transactions")], patterns=["v.m"])
    write(read, io.BytesIO())
    assert "changes of these tables that were logged as statements: 1;" in said(read)
    none = reading([vector("11.8/transactions")], patterns=["v.t"])
    write(none, io.BytesIO())
    assert "logged as statements" not in said(none)
