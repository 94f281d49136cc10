"""The statements of recorded binlogs: those that the kernel finds are those of the groups that the server marked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from replica.errors import TruncatedError
from replica.protocol.constants import BINLOG_MAGIC, GtidFlag
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.events.decode import ExecuteLoadQueryEvent, FormatDescriptionEvent, GtidEvent, decode
from replica.protocol.events.statement_events import QueryEvent
from replica.rows.scan import statements, windows
from replica.rows.scan.statements import LoggedStatement, LoggedText, logged_statements, logged_texts
from tests.kit.tree import files
from tests.vectors.load import HERE, VERSIONS

if TYPE_CHECKING:
    from pathlib import Path

FILES = sorted(path for version in VERSIONS for path in files(HERE / version, "*.binlog") if "encrypt" not in path.name)


def expected(data: bytes) -> list[tuple[str, bytes]]:
    found = []
    gtid: GtidEvent | None = None
    for _, event in decode_file(data):
        if isinstance(event, GtidEvent):
            gtid = event
        elif isinstance(event, QueryEvent) and gtid and gtid.flags2 & (GtidFlag.STANDALONE | GtidFlag.DDL):
            found.append((str(gtid.gtid), event.query))
    return found


def expected_texts(data: bytes) -> list[tuple[str, bytes, bool]]:
    """Every statement that is no border of a transaction, with its group, and whether the server marked that."""
    found = []
    gtid: GtidEvent | None = None
    for _, event in decode_file(data):
        if isinstance(event, GtidEvent):
            gtid = event
        elif isinstance(event, QueryEvent | ExecuteLoadQueryEvent) and gtid:
            marked = bool(gtid.flags2 & (GtidFlag.STANDALONE | GtidFlag.DDL))
            compressed = isinstance(event, QueryEvent) and event.compressed
            border = event.query in (b"COMMIT", b"BEGIN") or event.query.startswith((b"ROLLBACK", b"SAVEPOINT", b"XA "))
            if marked or compressed or not border:
                found.append((str(gtid.gtid), event.query, marked))
    return found


def described(data: bytes) -> tuple[memoryview, FormatDescriptionEvent]:
    events = memoryview(data)[len(BINLOG_MAGIC) :]
    length = int.from_bytes(events[9:13], "little")
    description = decode(events[:length], None)
    assert isinstance(description, FormatDescriptionEvent)
    return events, description


def found_in(data: bytes) -> list[LoggedStatement]:
    return list(logged_statements(*described(data)))


def texts_in(data: bytes) -> list[LoggedText]:
    return list(logged_texts(*described(data)))


@pytest.mark.parametrize(("room", "window"), [(1, 16 << 20), (64, 16 << 20), (64, 1), (1, 500)])
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_statements_of_marked_groups(path: Path, room: int, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "FIRST_FOUND", room)
    monkeypatch.setattr(windows, "WINDOW_BYTES", window)
    data = path.read_bytes()
    assert [(str(s.gtid), s.query.query) for s in found_in(data)] == expected(data)


@pytest.mark.parametrize(("room", "window"), [(1, 16 << 20), (64, 16 << 20), (64, 1), (1, 500)])
@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_all_statements_but_the_borders_of_transactions(
    path: Path, room: int, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "FIRST_FOUND", room)
    monkeypatch.setattr(windows, "WINDOW_BYTES", window)
    data = path.read_bytes()
    found = [(text.begin, text.statement.query, text.marked) for text in texts_in(data)]
    assert [(str(e.gtid), q, m) for e, q, m in found if isinstance(e, GtidEvent)] == expected_texts(data)


def test_there_are_statements_inside_transactions() -> None:
    assert any(not marked for path in FILES for _, _, marked in expected_texts(path.read_bytes()))


def test_there_is_something_to_find() -> None:
    assert sum(len(expected(path.read_bytes())) for path in FILES) > 50


def test_bytes_that_end_early() -> None:
    data = FILES[0].read_bytes()
    with pytest.raises(TruncatedError):
        found_in(data[:-3])
