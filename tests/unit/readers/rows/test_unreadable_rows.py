"""Row images that cannot be read though their checksum is right: what stands before comes, and they are gone around."""

from __future__ import annotations

import contextlib
import io
import json
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from replica.commands.dump.outputs.count import Summary, write_counts
from replica.commands.dump.outputs.human import HumanDump
from replica.commands.dump.outputs.json_lines import write_json_rows
from replica.commands.dump.outputs.sql import SqlDump
from replica.errors import ProtocolError
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import GtidEvent, RowsEvent
from tests.unit.commands.dump.files import reading, said, vector

if TYPE_CHECKING:
    from pathlib import Path

PLAIN, COMPRESSED = "11.8/transactions", "11.8/compression"
BAD = "0-1-16"
IMAGES_AT = 29
"""Of a rows event of two columns: header 19, table id and flags 8, width and one bitmap."""
LENGTH_AT = IMAGES_AT + 5
"""Behind the NULL bits and an INT: of the text; in a compressed event, inside of the block."""


def damaged(folder: Path, *groups: str, source: str = PLAIN) -> tuple[Path, list[tuple[int, int]]]:
    """The recorded file, the last rows event of these groups unreadable; where these events are."""
    data = bytearray(vector(source).read_bytes())
    places, gtid = {}, ""
    for place, event in decode_file(bytes(data)):
        if isinstance(event, GtidEvent):
            gtid = str(event.gtid)
        elif isinstance(event, RowsEvent) and gtid in groups:
            places[gtid] = (place.offset, place.end)
    for start, end in places.values():
        data[start + LENGTH_AT : end - 4] = b"\xff" * (end - 4 - start - LENGTH_AT)
        data[end - 4 : end] = zlib.crc32(data[start : end - 4]).to_bytes(4, "little")
    path = folder / "transactions.binlog"
    path.write_bytes(data)
    return path, list(places.values())


@pytest.mark.parametrize(
    ("source", "gtid", "before"),
    [(PLAIN, BAD, 8), (PLAIN, "0-1-4", 1), (PLAIN, "0-1-18", 13), (COMPRESSED, "0-1-3", None)],
)
def test_rows_before_come_and_then_the_error(tmp_path: Path, source: str, gtid: str, before: int | None) -> None:
    path, ((start, end),) = damaged(tmp_path, gtid, source=source)
    out = io.BytesIO()
    with pytest.raises(ProtocolError, match=r"transactions\.binlog: ") as raised:
        write_json_rows(reading([path]), out)
    assert raised.value.offset is not None
    assert start <= raised.value.offset < end
    lines = out.getvalue().decode().splitlines()
    expected = rows_text(source)
    assert lines == expected[: len(lines)]
    assert len(lines) == (len(expected) - 1 if before is None else before)


def rows_text(source: str) -> list[str]:
    out = io.BytesIO()
    write_json_rows(reading([vector(source)]), out)
    name = vector(source).name
    return out.getvalue().decode().replace(f'"{name}"', '"transactions.binlog"').splitlines()


@pytest.mark.parametrize("bad", [[BAD], ["0-1-4"], ["0-1-4", BAD, "0-1-17", "0-1-18"]])
def test_damaged_images_are_gone_around_by_whole_transactions(tmp_path: Path, bad: list[str]) -> None:
    path, places = damaged(tmp_path, *bad)
    read = reading([path], skip_damaged=True)
    out = io.BytesIO()
    write_json_rows(read, out)
    kept = [line for line in rows_text(PLAIN) if not any(f'"gtid":"{gtid}"' in line for gtid in bad)]
    assert out.getvalue().decode().splitlines() == kept
    notices = [line for line in said(read).splitlines() if " left out " in line]
    assert len(notices) == len(bad)
    for gtid, notice in zip(bad, notices, strict=True):
        assert f"transactions.binlog: left out {gtid}, " in notice
        assert f"ends beyond its event, in transaction {gtid} (at offset " in notice
    assert len(places) == len(bad)


def test_a_compressed_event_that_does_not_inflate_is_gone_around(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, "0-1-3", source=COMPRESSED)
    read = reading([path], skip_damaged=True)
    out = io.BytesIO()
    write_json_rows(read, out)
    assert out.getvalue() == b""
    assert "left out 0-1-3, " in said(read)


@pytest.mark.parametrize("kind", [HumanDump, SqlDump])
def test_events_and_rows_before_come_in_the_other_outputs_too(tmp_path: Path, kind: type[HumanDump | SqlDump]) -> None:
    path, _ = damaged(tmp_path, BAD)

    def text(*, skip: bool) -> tuple[str, bool]:
        out = io.BytesIO()
        try:
            kind(reading([path], need_names=True, skip_damaged=skip), out, only_rows=False).write()
        except ProtocolError:
            return out.getvalue().decode(), True
        return out.getvalue().decode(), False

    whole = io.BytesIO()
    path.with_name("whole").mkdir()
    copy = path.with_name("whole") / path.name
    copy.write_bytes(vector(PLAIN).read_bytes())
    kind(reading([copy], need_names=True), whole, only_rows=False).write()
    until, failed = text(skip=False)
    assert failed
    assert whole.getvalue().decode().startswith(until)
    assert "'between'" in until
    assert "`b`='one phase'" not in until.replace(" = ", "=")
    around, failed = text(skip=True)
    assert not failed
    assert "between" in around
    assert "skipped" in around
    assert "'one phase'" not in around
    assert f"GTID {BAD}" not in around


def test_counts_stop_at_the_damage_or_go_around_it(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, BAD)

    def counted(file: Path, *, skip: bool = False) -> tuple[dict[str, int], str]:
        read, summary = reading([file], skip_damaged=skip), Summary()
        for part in read.parts():
            try:
                summary.add(part, read)
            except ProtocolError as error:
                return rows_of(summary), str(error)
        return rows_of(summary), said(read)

    def rows_of(summary: Summary) -> dict[str, int]:
        return {name.table: int(counts.sum()) for name, counts in summary.rows.items()}

    until, error = counted(path)
    assert until == {"t": 4, "m": 2, "c": 2}
    assert "transactions.binlog: the row image of v.t ends beyond its event" in error
    around, notice = counted(path, skip=True)
    whole, _ = counted(vector(PLAIN))
    assert around == whole | {"t": whole["t"] - 1}
    assert f"left out {BAD}, " in notice
    out = io.BytesIO()
    with pytest.raises(ProtocolError):
        write_counts(reading([path]), out, as_json=True)
    assert b'"table":"t","insert":4' in out.getvalue()


def test_transactions_and_events_are_counted_as_far_as_the_rows(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, BAD)

    def counted(file: Path, *, skip: bool = False) -> dict[str, Any]:
        out = io.BytesIO()
        with contextlib.suppress(ProtocolError):
            write_counts(reading([file], skip_damaged=skip), out, as_json=True)
        found: dict[str, Any] = json.loads(out.getvalue())
        return found

    until, around, whole = counted(path), counted(path, skip=True), counted(vector(PLAIN))
    last = until["domains"][0]["last"]
    assert int(last.split("-")[2]) == int(BAD.split("-")[2]) - 1
    assert [event["events"] for event in until["events"] if event["type"] == "Gtid"] == [until["transactions"]]
    assert 0 < until["transactions"] < whole["transactions"]
    assert around["transactions"] == whole["transactions"] - 1
    assert around["skipped"] == whole["skipped"] | {"transactions that cannot be read": 1}


def test_the_error_names_the_option_that_goes_around_it(tmp_path: Path) -> None:
    path, _ = damaged(tmp_path, BAD)
    for write in (write_json_rows, lambda read, out: write_counts(read, out, as_json=True)):
        with pytest.raises(ProtocolError, match=r"\(at offset \d+\)\. The bytes are damaged; with --skip-damaged"):
            write(reading([path]), io.BytesIO())
