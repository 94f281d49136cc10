"""Binlogs of a real MySQL: replayed they give the tables that its SELECT showed, and agree with its mysqlbinlog -vv."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pytest

from replica.errors import ProtocolError
from replica.protocol.constants import BINLOG_MAGIC
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import RowsEvent, TableMapEvent
from replica.protocol.rows.values import format_time
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, TableTarget
from replica.rows.scan import records as r
from replica.rows.scan.scan import scan
from replica.rows.tables.layout import compile_layout
from tests.kit.oracle.images import plain_rows
from tests.kit.oracle.rows import read_rows
from tests.vectors.mysql.load import binlogs, listed_rows, read, tables

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.rows.types.types import OutputColumn

STEMS = ("groups", "json", "json_large", "partial_json", "partitions", "payload", "types")
OPTIONS = DecodeOptions(invalid_dates="text", want_sql=True)
OPERATIONS = {"INSERT INTO": 0, "UPDATE": 1, "DELETE FROM": 2}


class Change(NamedTuple):
    table: str
    gtid: int
    ordinal: int
    op: int
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class Columns:
    """Looks at every table of a binlog, wants none."""

    def __init__(self) -> None:
        self.outputs: dict[str, tuple[OutputColumn, ...]] = {}

    def resolve(self, table_map: TableMapEvent) -> None:
        self.outputs[table_map.table] = compile_layout(table_map, None, None, OPTIONS.policy).outputs


class Only:
    def __init__(self, table: str) -> None:
        self.table = table

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        return TableTarget() if table_map.table == self.table else None


def changes(name: str) -> Iterator[Change]:
    """Every change of a binlog, table by table, through the kernels."""
    data = read(name)
    seen = Columns()
    list(RangeDecoder(seen, DecodeOptions(shape="variant")).decode(data, checksum=True, unprepared=[]))
    for table, outputs in seen.outputs.items():
        for batch in RangeDecoder(Only(table), OPTIONS, outputs).decode(data, checksum=True):
            sides = [
                [dict(zip([o.name for o in outputs], row, strict=True)) for row in zip(*lists, strict=True)]
                for lists in ([a.to_pylist() for a in batch.before], [a.to_pylist() for a in batch.after])
            ]
            for row in range(batch.rows):
                before = sides[0][row] if batch.before_valid[row] else None
                after = sides[1][row] if batch.after_valid[row] else None
                gtid = int(batch.groups.seq_no[batch.group[row]])
                yield Change(table, gtid, int(batch.ordinal[row]), int(batch.op[row]), before, after)


def text(value: object, expected: str | None) -> object:
    """A decoded value in the form that the recorded SELECT has."""
    match value:
        case Decimal():
            return f"{value:f}"
        case bytes():
            return value.hex().upper()
        case timedelta():
            return format_time(value, 3)
        case float():
            # SELECT prints a FLOAT's shortest digits; here it comes widened to a DOUBLE.
            same = value == float(expected or "nan") or np.float32(value) == np.float32(expected or "nan")
            return expected if same else value
        case int() if expected == f"{value:X}":  # BIT, which SELECT was asked for in hex
            return expected
    return None if value is None else str(value)


@pytest.mark.parametrize("stem", STEMS)
def test_replayed_changes_give_the_tables_that_select_showed(stem: str) -> None:
    state: dict[str, list[dict[str, Any]]] = {}
    for name in binlogs(stem):
        for change in changes(name):
            rows = state.setdefault(change.table, [])
            if change.before is not None:
                rows.remove(change.before)
            if change.after is not None:
                rows.append(change.after)
    if stem == "groups":
        state["m"].clear()  # TRUNCATE
        state["t"].append({"id": 12, "s": "COMMIT"})  # logged as a statement
        state["d"] = []  # dropped while empty, so that it has no table map
        del state["d"]
    expected = tables(stem)
    assert set(state) == set(expected)
    for table, rows in expected.items():
        width = len(rows[0]) if rows else 0
        found = sorted((list(row.values()) for row in state[table]), key=lambda row: list(map(str, row)))
        assert [len(row) for row in found] == [width] * len(rows)
        wanted = sorted(rows, key=lambda row: list(map(str, row)))
        shown = [
            [text(v, e) for v, e in zip(row, row_wanted, strict=True)]
            for row, row_wanted in zip(found, wanted, strict=True)
        ]
        assert shown == wanted


# mysqlbinlog cannot print GEOMETRY and loses the rows of `types` behind the first.
@pytest.mark.parametrize("name", [name for stem in STEMS for name in binlogs(stem) if stem != "types"])
def test_the_rows_are_those_that_mysqlbinlog_lists(name: str) -> None:
    """Operation, table and number of columns of each; values of JSON, INT and VARCHAR columns as it prints them."""
    listed = [row for row in listed_rows(name) if row.operation in OPERATIONS]
    found: dict[str, list[Change]] = {}
    for change in changes(name):
        found.setdefault(change.table, []).append(change)
    wanted: dict[str, list[Any]] = {}
    for row in listed:
        wanted.setdefault(row.table.split(".")[1].strip("`"), []).append(row)
    if name == "groups.1.binlog":  # it lists what XA PREPARE has, and XA ROLLBACK takes back
        rows = {row.after.get(1): row for row in wanted["t"]}
        prepared, between = wanted["t"].index(rows["7"]), wanted["t"].index(rows["8"])
        wanted["t"].insert(between, wanted["t"].pop(prepared))
        wanted["t"].remove(rows["9"])
    assert {table: len(rows) for table, rows in found.items()} == {table: len(rows) for table, rows in wanted.items()}
    compared = 0
    for table, rows in wanted.items():
        for row, change in zip(rows, found[table], strict=True):
            assert OPERATIONS[row.operation] == change.op
            for listed_side, side in ((row.before, change.before or {}), (row.after, change.after or {})):
                if row.operation == "DELETE FROM" and side is change.after:
                    continue
                values = list(side.values())
                for number, value in listed_side.items():
                    compared += _agrees(value, values[number - 1])
    assert compared >= len(listed)


def _agrees(listed: str, value: object) -> bool:
    """Whether the value was compared; a difference fails."""
    if listed == "NULL":
        assert value is None
        return True
    if isinstance(value, int) and listed.lstrip("-").isdecimal() and int(listed) == value:
        return True
    if not isinstance(value, str) or not listed.startswith("'") or ":" in listed[:11]:
        return False
    # A document that is a text alone is listed without its own quotes.
    plain = json.loads(value) if value.startswith('"') else value
    assert listed[1:-1] in [re.sub(r"[\\'\0-\x1f]", _escape, each) for each in (value, plain)]
    return True


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    named = dict(zip("\\'\b\t\n\f\r", "\\'btnfr", strict=True)).get(character)
    return f"\\{named or f'x{ord(character):02x}'}"


@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem != "groups"])
def test_the_plain_decoder_gives_the_same(stem: str) -> None:
    """All of it in Python; `groups` has XA transactions, which are put in order elsewhere."""
    (name,) = binlogs(stem)
    expected: dict[str, list[tuple[Any, Any]]] = {}
    for change in changes(name):
        expected.setdefault(change.table, []).append((change.before, change.after))
    written_out = scan(read(name), checksum=True)
    data = BINLOG_MAGIC + bytes(written_out.data) if written_out.expansion else read(name)
    found: dict[str, list[tuple[Any, Any]]] = {}
    maps: dict[int, TableMapEvent] = {}
    for _, event in decode_file(data):
        if isinstance(event, TableMapEvent):
            maps[event.table_id] = event
        elif isinstance(event, RowsEvent):
            table_map = maps[event.table_id]
            layout = compile_layout(table_map, None, None, OPTIONS.policy)
            rows = list(read_rows(plain_rows(event, table_map.columns, layout), layout, OPTIONS.policy))
            found.setdefault(table_map.table, []).extend((row.before, row.after) for row in rows)
    assert found == expected


def test_rows_of_xa_transactions_come_with_their_commit() -> None:
    data = read("groups.1.binlog")
    gtids = {
        change.after["id"]: change.gtid for change in changes("groups.1.binlog") if change.table == "t" and change.after
    }
    assert gtids[7] == 10  # prepared as 8
    assert 9 not in gtids  # rolled back
    assert gtids[10] == 13  # one phase
    endings = scan(data, checksum=True).groups["ending"].tolist()
    assert endings.count(r.ENDS_XA_PREPARE) == 3


def test_the_statement_is_the_text_of_rows_query() -> None:
    data = read("payload.binlog")
    seen = Columns()
    list(RangeDecoder(seen, DecodeOptions(shape="variant")).decode(data, checksum=True))
    (batch,) = RangeDecoder(Only("t"), OPTIONS, seen.outputs["t"]).decode(data, checksum=True)
    assert batch.sql is not None
    assert batch.sql.to_pylist()[-1] == "INSERT INTO t (s) VALUES ('plain')"


def test_a_diff_of_a_value_that_is_not_in_the_log_is_an_error_with_the_way_out() -> None:
    with pytest.raises(ProtocolError, match=r"v\.j: column b: a JSON diff lacks the value.*binlog_row_image=FULL"):
        list(changes("partial_minimal.binlog"))


@pytest.mark.parametrize("name", [name for stem in STEMS for name in binlogs(stem)])
def test_table_maps_are_read_as_mysql_writes_them(name: str) -> None:
    """GEOMETRY has no collation there, so that those of the columns after it would be one off."""
    found = scan(read(name), checksum=True)
    assert found.is_mysql == bool(len(found.groups))
