"""JSON diffs: paths, what applying them gives, what MySQL's own tool makes of the same bytes, and damage."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replica.errors import ProtocolError
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import RowsEvent, TableMapEvent
from replica.protocol.mysql import partial_update
from replica.protocol.mysql.binary_json import Json, Opaque, json_text
from replica.protocol.mysql.partial_update import MAX_MOVED, DiffOperation, JsonDiff, apply_diffs, read_diffs
from tests.unit.protocol.mysql.wire_json import binary
from tests.vectors.mysql.load import listed_rows, read

if TYPE_CHECKING:
    from collections.abc import Iterator

REPLACE, INSERT, REMOVE = DiffOperation


def diff(operation: int, path: str, value: Any = None) -> bytes:
    text = path.encode()
    out = bytes([operation, len(text)]) + text
    if operation != REMOVE:
        document = binary(value)
        out += (
            bytes([len(document)]) if len(document) < 251 else b"\xfc" + len(document).to_bytes(2, "little")
        ) + document
    return out


def after(document: Any, *diffs: bytes) -> Any:
    return apply_diffs(document, read_diffs(b"".join(diffs)))


@pytest.mark.parametrize(
    ("path", "legs"),
    [
        ("$", ()),
        ("$.a", ("a",)),
        ("$.a.b[0][12].c", ("a", "b", 0, 12, "c")),
        ('$."a b"."quote\\"d"[1]."".é', ("a b", 'quote"d', 1, "", "é")),
        ('$."\\u00e9\\\\."', ("é\\.",)),
        ("$[4294967295]", (4294967295,)),
    ],
)
def test_paths(path: str, legs: tuple[str | int, ...]) -> None:
    assert JsonDiff(REMOVE, path).legs == legs


@pytest.mark.parametrize(
    "path", ["", "a", "$a", "$.", "$.*", "$[*]", "$**.a", "$[1", "$[-1]", "$[last]", "$[1 to 2]", '$."a', '$."\\x"']
)
def test_paths_that_mysql_does_not_log(path: str) -> None:
    with pytest.raises(ProtocolError, match="JSON document"):
        _ = JsonDiff(REMOVE, path).legs


def test_a_path_deeper_than_any_document() -> None:
    with pytest.raises(ProtocolError, match="100 steps"):
        _ = JsonDiff(REMOVE, "$" + "[0]" * 101).legs


def test_applying() -> None:
    assert after({"a": 1}, diff(REPLACE, "$.a", 2)) == {"a": 2}
    assert after({"a": [1, 2, 3]}, diff(REMOVE, "$.a[0]"), diff(REPLACE, "$.a[1]", "x")) == {"a": [2, "x"]}
    assert after([1, 2], diff(INSERT, "$[0]", 0), diff(INSERT, "$[99]", 3)) == [0, 1, 2, 3]
    assert after(7, diff(REPLACE, "$", {"whole": True})) == {"whole": True}
    assert after({"a": 1}) == {"a": 1}


def test_a_new_member_stands_where_mysql_keeps_it() -> None:
    """By length, then by bytes."""
    found = after(
        {"b": 1, "é": 2, "ccc": 3}, diff(INSERT, "$.aa", 4), diff(INSERT, "$.a", 5), diff(INSERT, "$.dddd", 6)
    )
    assert json_text(found) == '{"a": 5, "b": 1, "aa": 4, "é": 2, "ccc": 3, "dddd": 6}'


@pytest.mark.parametrize(
    ("document", "one"),
    [
        ({"a": 1}, diff(REPLACE, "$.b", 1)),
        ({"a": 1}, diff(REPLACE, "$[0]", 1)),
        ({"a": 1}, diff(INSERT, "$.a", 1)),
        ({"a": 1}, diff(INSERT, "$[0]", 1)),
        ({"a": 1}, diff(INSERT, "$.a.b", 1)),
        ({"a": 1}, diff(INSERT, "$.b.c", 1)),
        ({"a": 1}, diff(INSERT, "$", 1)),
        ({"a": 1}, diff(REMOVE, "$")),
        ({"a": 1}, diff(REMOVE, "$.b")),
        ([1], diff(REPLACE, "$[1]", 1)),
        ([1], diff(REMOVE, "$[1]")),
        ([1], diff(REMOVE, "$.a")),
        (None, diff(REPLACE, "$.a", 1)),
    ],
)
def test_diffs_that_do_not_fit(document: Json, one: bytes) -> None:
    with pytest.raises(ProtocolError, match="does not fit the value before it"):
        apply_diffs(document, read_diffs(one))


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"\x03\x01$", "3 is not an operation"), (b"\x02\x05$", "5 bytes wanted"),
     (b"\x00\x01$\x05\x04", "5 bytes wanted"), (b"\x02\x01\xff", "not utf-8")],
)  # fmt: skip
def test_damaged_bytes(data: bytes, message: str) -> None:
    with pytest.raises(ProtocolError, match=message):
        read_diffs(data)


def test_work_is_bounded() -> None:
    """Each insertion at the front moves the whole array: as many as fit an event would run for hours."""
    size = 1 << 20
    some = [JsonDiff(INSERT, "$[0]", 0)] * (MAX_MOVED // size + 1)
    with pytest.raises(ProtocolError, match="move more than"):
        apply_diffs([0] * size, some)


@given(st.binary(max_size=60))
def test_garbage_raises_our_errors_only(data: bytes) -> None:
    try:
        apply_diffs({"a": [1, {"b": None}]}, read_diffs(data))
    except ProtocolError:
        return


# -- the same diffs as mysqlbinlog prints them ---------------------------------------------------------------------


def test_diffs_are_those_that_mysqlbinlog_lists() -> None:
    listed = [
        text
        for row in listed_rows("partial_json.binlog")
        for text in row.after.values()
        if text.startswith(("JSON_", "@"))
    ]
    found = [_call(number, diffs) for number, diffs in _diffs_of_the_file()]
    assert len(listed) > 10
    assert found == listed


def _diffs_of_the_file() -> Iterator[tuple[int, tuple[JsonDiff, ...]]]:
    """(column number, diffs) of each partial column, found by looking at what `apply_partial_update` reads."""
    maps: dict[int, TableMapEvent] = {}
    found: list[tuple[int, tuple[JsonDiff, ...]]] = []
    original = partial_update._after

    def note(data: Any, index: int, known: dict[int, Json]) -> Json:
        found.append((index + 1, read_diffs(data)))
        return original(data, index, known)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(partial_update, "_after", note)
        for _, event in decode_file(read("partial_json.binlog")):
            if isinstance(event, TableMapEvent):
                maps[event.table_id] = event
            elif isinstance(event, RowsEvent) and event.partial:
                columns = maps[event.table_id].columns
                partial_update.apply_partial_update(event.images, event.columns_before, event.columns_after, columns)
    yield from found


def _call(number: int, diffs: tuple[JsonDiff, ...]) -> str:
    text = f"@{number}"
    for function, some in groupby(diffs, key=_function):
        arguments = ", ".join(
            f"'{one.path}'" + ("" if one.operation is REMOVE else f", {_sql(one.value)}") for one in some
        )
        text = f"{function}({'' if text.startswith('@') else ' '}{text}, {arguments})"
    return text


def _function(one: JsonDiff) -> str:
    if one.operation is INSERT:
        return "JSON_ARRAY_INSERT" if one.path.endswith("]") else "JSON_INSERT"
    return f"JSON_{one.operation.name}"


def _sql(value: Json) -> str:
    if isinstance(value, str):
        return f"'{value}'"
    text = json_text(value)
    if isinstance(value, Opaque):
        return re.sub('^"(.*)"$', r"'\1'", text)
    return f"CAST('{text}' AS JSON)" if isinstance(value, list | dict) else text
