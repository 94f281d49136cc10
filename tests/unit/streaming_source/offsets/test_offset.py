"""Offsets: what was ever written stays readable and is written the same way again; what is no offset is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replica.errors import ConfigError
from replica.protocol.groups.fingerprint import Fingerprint
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.snapshot.frontier import Frontier
from streaming_source.offsets.offset import GroupPart, SourceOffset
from streaming_source.offsets.reading_requests import RequestedTables, ResnapshotRequest


def _golden(version: int) -> list[dict[str, Any]]:
    file = Path(__file__).parents[3] / "golden" / f"offsets-v{version}.json"
    found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return found


_u32 = st.integers(0, 2**32 - 1)
_gtids = st.dictionaries(_u32, st.tuples(_u32, st.integers(0, 2**64 - 1)), max_size=4)
_positions = _gtids.map(lambda d: GtidPosition(tuple(Gtid(domain, *rest) for domain, rest in d.items())))
_primaries = st.builds(BinlogPosition, st.text("abin.0-9", min_size=1), st.integers(4, 2**60))
_parts = st.builds(GroupPart, st.builds(Gtid, _u32, _u32, st.integers(0, 2**64 - 1)), st.integers(1, 2**40))
_lasts = st.builds(Fingerprint, st.builds(Gtid, _u32, _u32, st.integers(0, 2**64 - 1)), _u32, _u32, _u32, _u32)
_plain = st.builds(SourceOffset, _positions, _positions, anchor=st.booleans()) | st.builds(
    SourceOffset,
    _positions,
    _positions,
    _primaries,
    st.none() | _u32,
    anchor=st.booleans(),
    uid=st.none() | st.text(),
    last=st.none() | _lasts,
)
_highest = st.dictionaries(_u32, st.integers(1, 2**64 - 1), max_size=3).map(lambda d: tuple(sorted(d.items())))
_tables = st.tuples(st.text(min_size=1, max_size=3), st.text(min_size=1, max_size=3))
_opened = st.dictionaries(_tables, st.binary(max_size=9), max_size=3).map(lambda d: tuple(sorted(d.items())))
_frontiers = st.builds(Frontier, st.none() | _tables, _opened, st.integers(0, 2**50), st.booleans())
_offsets = (
    _plain
    | st.builds(replace, _plain, part=st.none() | _parts, snapshot=_frontiers, begin=st.none() | _plain)
    | st.builds(replace, _plain, part=_parts, begin=st.none() | _plain, schema=st.none() | st.text())
    | st.builds(replace, _plain, part=st.none() | _parts, highest=_highest)
)


@pytest.mark.parametrize("golden", _golden(1), ids=lambda g: g["gtid"])
def test_offsets_of_version_1_are_read_and_written_as_ever(golden: dict[str, Any]) -> None:
    offset = SourceOffset.parse(json.loads(golden["text"]))
    assert str(offset.position) == golden["gtid"]
    assert str(offset.resume) == golden["resume"]
    assert offset.anchor is golden["anchor"]
    primary = None if golden["file"] is None else BinlogPosition(golden["file"], golden["position"])
    assert (offset.primary, offset.server_id) == (primary, golden["id"])
    assert (offset.uid, offset.last and str(offset.last)) == (golden.get("uid"), golden.get("last"))
    assert (offset.selection and offset.selection.json()) == golden.get("selection")
    assert json.dumps(offset.json()) == golden["text"]  # Spark compares this text


@pytest.mark.parametrize("golden", _golden(2), ids=lambda g: str(g["part"] or g["begin"]))
def test_offsets_of_version_2_are_read_and_written_as_ever(golden: dict[str, Any]) -> None:
    offset = SourceOffset.parse(json.loads(golden["text"]))
    part = offset.part and [str(offset.part.gtid), offset.part.rows]
    begin = None if offset.begin is None else str(offset.begin.position)
    assert (part, begin, offset.schema) == (golden["part"], golden["begin"], golden["schema"])
    assert (offset.selection and offset.selection.json()) == golden.get("selection")
    assert json.dumps(offset.json()) == golden["text"]


@pytest.mark.parametrize("golden", _golden(3), ids=lambda g: str(g["highest"]))
def test_offsets_of_version_3_are_read_and_written_as_ever(golden: dict[str, Any]) -> None:
    offset = SourceOffset.parse(json.loads(golden["text"]))
    assert [list(pair) for pair in offset.highest] == golden["highest"]
    assert json.dumps(offset.json()) == golden["text"]


@pytest.mark.parametrize("golden", _golden(4), ids=lambda g: str(g["snapshot"]))
def test_offsets_of_version_4_are_read_and_written_as_ever(golden: dict[str, Any]) -> None:
    offset = SourceOffset.parse(json.loads(golden["text"]))
    frontier = offset.snapshot or (offset.begin.snapshot if offset.begin else None)
    assert frontier is not None
    told = [frontier.after and list(frontier.after), {".".join(n): k.hex() for n, k in frontier.open}]
    assert [*told, frontier.rows, frontier.finished] == golden["snapshot"]
    assert json.dumps(offset.json()) == golden["text"]


def test_requests_that_a_batch_begins_to_follow_are_no_part_of_the_place() -> None:
    asked = RequestedTables.of(
        [ResnapshotRequest("b", (("shop", "x"),)), ResnapshotRequest("a", (("büro", "y"), ("shop", "x")))]
    )
    assert asked == RequestedTables(("a", "b"), (("büro", "y"), ("shop", "x")))
    offset = SourceOffset(GtidPosition.parse("0-1-4"), GtidPosition.parse("0-1-4"))
    begun = replace(offset, asked=asked)
    assert SourceOffset.parse(json.loads(json.dumps(begun.json()))).asked == asked
    assert (begun == offset, begun.json()["v"], begun.place.asked) == (True, 1, None)
    with pytest.raises(ConfigError, match="is damaged"):
        SourceOffset.parse({**offset.json(), "asked": {"words": []}})


def test_tables_that_are_left_out_are_told_with_their_reasons() -> None:
    offset = SourceOffset(GtidPosition.parse("0-1-3"), GtidPosition.parse("0-1-3"), BinlogPosition("bin.1", 400), 1)
    told = replace(offset, refused=((("büro", "y"), "it has no key"),))
    assert SourceOffset.parse(json.loads(json.dumps(told.json()))).refused == told.refused
    assert (told == offset, told.json()["v"], told.place.refused, "refused" in offset.json()) == (True, 1, (), False)
    with pytest.raises(ConfigError, match="is damaged"):
        SourceOffset.parse({**offset.json(), "refused": [["shop", "x"]]})


def test_the_place_in_the_binlog_is_known_only_of_the_position_that_it_belongs_to() -> None:
    place = BinlogPosition("bin.1", 400)
    same = SourceOffset(GtidPosition.parse("0-1-3"), GtidPosition.parse("0-1-3"), place, 1)
    assert same.resume_primary == place
    assert replace(same, resume=GtidPosition.parse("0-1-2")).resume_primary is None


def test_version_4_is_written_only_while_tables_are_read() -> None:
    plain = SourceOffset(GtidPosition.parse("0-1-3"), GtidPosition.parse("0-1-3"), BinlogPosition("bin.1", 400), 1)
    reading = replace(plain, snapshot=Frontier())
    assert [plain.json()["v"], reading.json()["v"], replace(plain, begin=reading).json()["v"]] == [1, 4, 4]
    assert "snapshot" not in plain.json()
    assert reading != plain
    assert reading.place.snapshot == Frontier(), "it belongs to the place"


def test_version_3_is_written_only_where_sequence_numbers_went_back() -> None:
    plain = SourceOffset(GtidPosition.parse("0-1-3"), GtidPosition.parse("0-1-3"), BinlogPosition("bin.1", 400), 1)
    behind = replace(plain, highest=((0, 9),))
    assert [plain.json()["v"], behind.json()["v"]] == [1, 3]
    assert "highest" not in plain.json()
    assert behind.place.highest == ((0, 9),), "it belongs to the place"


def test_version_2_is_written_only_where_version_1_cannot_say_it() -> None:
    plain = SourceOffset(GtidPosition.parse("0-1-3,1-1-1"), GtidPosition.parse("0-1-2"))
    inside = replace(plain, part=GroupPart(Gtid(1, 1, 2), 5))
    assert [plain.json()["v"], inside.json()["v"], replace(plain, begin=plain).json()["v"]] == [1, 2, 2]
    assert (str(plain.through), str(inside.through)) == ("0-1-3,1-1-1", "0-1-3,1-1-2")
    assert replace(inside, anchor=True, begin=plain).place == plain


@settings(max_examples=100)
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
        (None, "not written by mariadb-binlog"),
        ([1], "not written by mariadb-binlog"),
        ({"topic-0": 3}, "not written by mariadb-binlog"),
        ({"v": 5, "gtid": "0-1-1"}, "version 5; this version reads up to 4"),
        ({"v": 4, "gtid": "0-1-1", "resume": "0-1-1", "server": {}, "snapshot": {"after": ["a"]}}, "damaged"),
        ({"v": 4, "gtid": "0-1-1", "resume": "0-1-1", "server": {}, "snapshot": 7}, "damaged"),
        ({"v": 2, "gtid": "0-1-1", "resume": "0-1-1", "server": {}, "part": {"gtid": "0-1-2"}}, "damaged"),
        ({"v": 2, "gtid": "0-1-1", "resume": "0-1-1", "server": {}, "begin": 7}, "not written by mariadb-binlog"),
        ({"v": 1}, "damaged"),
        ({"v": 1, "gtid": "", "resume": "", "server": {}, "selection": {"shape": "flat"}}, "damaged"),
        ({"v": 1, "gtid": "", "resume": "", "server": {}, "selection": {"shape": "x", "packed": "eA=="}}, "damaged"),
        ({"v": 1, "gtid": "0-1-1", "resume": "0-1-1", "server": {"file": "b"}}, "damaged"),
        ({"v": 1, "gtid": 7, "resume": "0-1-1", "server": {}}, "'7' is not a GTID"),
        ({"v": 1, "gtid": "x", "resume": "0-1-1", "server": {}}, "is not a GTID"),
    ],
)
def test_what_is_no_offset_is_refused(value: object, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SourceOffset.parse(value)
