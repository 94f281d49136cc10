"""Offsets: what was ever written stays readable and is written the same way again; what is no offset is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ConfigError
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from streaming_source.offset import SourceOffset

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[2] / "golden" / "offsets-v1.json").read_text(encoding="utf-8")
)

_u32 = st.integers(0, 2**32 - 1)
_gtids = st.dictionaries(_u32, st.tuples(_u32, st.integers(0, 2**64 - 1)), max_size=4)
_positions = _gtids.map(lambda d: GtidPosition(tuple(Gtid(domain, *rest) for domain, rest in d.items())))
_primaries = st.builds(BinlogPosition, st.text("abin.0-9", min_size=1), st.integers(4, 2**60))
_offsets = st.builds(SourceOffset, _positions, _positions, anchor=st.booleans()) | st.builds(
    SourceOffset, _positions, _positions, _primaries, st.none() | _u32, anchor=st.booleans()
)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: g["gtid"])
def test_offsets_of_version_1_are_read_and_written_as_ever(golden: dict[str, Any]) -> None:
    offset = SourceOffset.parse(json.loads(golden["text"]))
    assert str(offset.position) == golden["gtid"]
    assert str(offset.resume) == golden["resume"]
    assert offset.anchor is golden["anchor"]
    primary = None if golden["file"] is None else BinlogPosition(golden["file"], golden["position"])
    assert (offset.primary, offset.server_id) == (primary, golden["id"])
    assert json.dumps(offset.json()) == golden["text"]  # Spark compares this text


@settings(max_examples=100, deadline=None)
@given(_offsets)
def test_the_json_text_is_the_identity(offset: SourceOffset) -> None:
    text = json.dumps(offset.json())
    again = SourceOffset.parse(json.loads(text))
    assert again == offset
    assert json.dumps(again.json()) == text


def test_key_order_of_what_is_parsed_does_not_matter() -> None:
    shuffled = {"server": {"position": 9, "file": "b.1", "id": 3}, "resume": "0-1-2", "gtid": "0-1-3", "v": 1}
    expected = '{"v": 1, "gtid": "0-1-3", "resume": "0-1-2", "server": {"id": 3, "file": "b.1", "position": 9}}'
    assert json.dumps(SourceOffset.parse(shuffled).json()) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "not one of mariadb-binlog"),
        ([1], "not one of mariadb-binlog"),
        ({"topic-0": 3}, "not one of mariadb-binlog"),
        ({"v": 2, "gtid": "0-1-1"}, "version 2; this version reads up to 1"),
        ({"v": 1}, "damaged"),
        ({"v": 1, "gtid": "0-1-1", "resume": "0-1-1", "server": {"file": "b"}}, "damaged"),
        ({"v": 1, "gtid": 7, "resume": "0-1-1", "server": {}}, "'7' is not a GTID"),
        ({"v": 1, "gtid": "x", "resume": "0-1-1", "server": {}}, "is not a GTID"),
    ],
)
def test_what_is_no_offset_is_refused(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOffset.parse(value)
