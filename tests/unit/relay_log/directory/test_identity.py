from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.relay_log.directory.identity import (
    IDENTITY_NAME,
    MAX_CONNECTIONS,
    MAX_SOURCES,
    CopiedFrom,
    DumpThread,
    Identity,
    read_identity,
    source_of,
    stores_lower_case,
    take_identity,
    write_identity,
)

if TYPE_CHECKING:
    from pathlib import Path

LAST = DumpThread("db1:3306", 1, 1_700_000_000, 42, "10.0.0.9:5555")


def test_a_drawn_id_is_kept_and_a_configured_one_replaces_it(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    assert take_identity(tmp_path, drawn=7, configured=False, owner="embedded") == Identity(7, "embedded")
    assert take_identity(tmp_path, drawn=8, configured=False, owner="daemon") == Identity(7, "daemon")
    assert read_identity(tmp_path) == Identity(7, "daemon")
    assert take_identity(tmp_path, drawn=9, configured=True, owner="daemon").server_id == 9
    assert read_identity(tmp_path) == Identity(9, "daemon")


def test_the_last_connection_survives_a_new_start(tmp_path: Path) -> None:
    write_identity(tmp_path, Identity(7, "daemon", (LAST,), (CopiedFrom(3, "5f"),)))
    assert take_identity(tmp_path, drawn=8, configured=False, owner="daemon").connections == (LAST,)
    assert [path.name for path in tmp_path.iterdir()] == [IDENTITY_NAME]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff\xfe",
        b'{"version": 2, "server_id": 7, "owner": "daemon", "connections": []}',
        b'{"version": 1, "server_id": "x", "owner": "daemon", "connections": []}',
        b'{"version": 1, "server_id": 7, "owner": "somebody", "connections": []}',
        b'{"version": 1, "server_id": 7, "owner": "daemon", "connections": [{"endpoint": "x"}]}',
        b'{"version": 1, "server_id": 7, "owner": "daemon", "connections": [1]}',
        (
            b'{"version": 1, "server_id": 7, "owner": "daemon", "connections": [{"endpoint": "x", "server_id": 1, '
            b'"started": 1, "thread_id": "1; DROP", "client": "x"}]}'
        ),
        b" " * 100_000,
    ],
)
def test_what_is_not_an_identity_is_an_error_and_stays(tmp_path: Path, content: bytes) -> None:
    (tmp_path / IDENTITY_NAME).write_bytes(content)
    for ask in (read_identity, lambda d: take_identity(d, drawn=1, configured=True, owner="daemon")):
        with pytest.raises(RelayError, match="identity") as caught:
            ask(tmp_path)
        assert "server_id" in caught.value.hint
    assert (tmp_path / IDENTITY_NAME).read_bytes() == content


def test_it_is_one_line_of_json(tmp_path: Path) -> None:
    write_identity(tmp_path, Identity(7, "daemon", (LAST,), (CopiedFrom(3, "5f"),)))
    text = (tmp_path / IDENTITY_NAME).read_text(encoding="utf-8")
    assert text.count("\n") == 1
    assert json.loads(text) == {
        "version": 1,
        "server_id": 7,
        "owner": "daemon",
        "connections": [
            {
                "endpoint": "db1:3306",
                "server_id": 1,
                "started": 1_700_000_000,
                "thread_id": 42,
                "client": "10.0.0.9:5555",
            }
        ],
        "sources": [[3, "5f"]],
        "lower_case": False,
    }


@pytest.mark.parametrize(("number", "kind"), [(errno.ENOSPC, DiskFullError), (errno.EDQUOT, DiskFullError)])
def test_a_full_disk_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[RelayError]
) -> None:
    write_identity(tmp_path, Identity(7, "daemon"))

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("os.write", refuse)
    with pytest.raises(kind, match="failed"):
        write_identity(tmp_path, Identity(8, "daemon"))
    monkeypatch.undo()
    assert read_identity(tmp_path) == Identity(7, "daemon")


def test_a_folder_that_cannot_be_used_is_not_a_full_disk(tmp_path: Path) -> None:
    with pytest.raises(RelayError) as caught:
        write_identity(tmp_path / "missing", Identity(8, "daemon"))
    assert type(caught.value) is RelayError
    (tmp_path / IDENTITY_NAME).mkdir()
    with pytest.raises(RelayError, match="cannot be read"):
        read_identity(tmp_path)


def test_one_connection_a_primary_is_remembered_and_not_endlessly_many() -> None:
    identity = Identity(7, "daemon").with_connection(LAST)
    again = replace(LAST, thread_id=43)
    other = replace(LAST, endpoint="10.0.0.2:3306")  # two nodes of a Galera cluster have one server id
    identity = identity.with_connection(other).with_connection(again)
    assert identity.connections == (other, again)
    assert identity.without_connection(again).connections == (other,)
    for number in range(100, 200):
        identity = identity.with_connection(replace(LAST, server_id=number))
    assert len(identity.connections) == MAX_CONNECTIONS
    assert identity.connections[-1].server_id == 199


def test_each_file_is_known_to_be_of_the_server_it_came_from() -> None:
    identity = Identity(7, "daemon")
    assert identity.source_of(1) is None
    for file, uid in ((2, "a"), (5, "b"), (9, "a")):
        identity = identity.with_source(CopiedFrom(file, uid))
    assert [identity.source_of(file) for file in (1, 2, 4, 5, 8, 9, 100)] == [None, "a", "a", "b", "b", "a", "a"]


def test_a_change_of_server_that_brought_no_file_is_forgotten() -> None:
    identity = Identity(7, "daemon").with_source(CopiedFrom(2, "a")).with_source(CopiedFrom(5, "b"))
    assert identity.with_source(CopiedFrom(5, "a")).sources == (CopiedFrom(2, "a"),)
    assert identity.with_source(CopiedFrom(5, "c")).sources == (CopiedFrom(2, "a"), CopiedFrom(5, "c"))
    assert identity.with_source(CopiedFrom(1, "c")).sources == (CopiedFrom(1, "c"),)


def test_changes_of_server_are_not_endlessly_many_and_survive_a_restart(tmp_path: Path) -> None:
    identity = Identity(7, "daemon")
    for number in range(2 * MAX_SOURCES):
        identity = identity.with_source(CopiedFrom(number, str(number)))
    assert len(identity.sources) == MAX_SOURCES
    write_identity(tmp_path, identity)
    assert read_identity(tmp_path) == identity
    assert source_of(tmp_path, 2 * MAX_SOURCES) == str(2 * MAX_SOURCES - 1)
    (tmp_path / IDENTITY_NAME).write_text("?")
    assert source_of(tmp_path, 1) is None


def test_whether_the_primary_stores_names_in_small_letters(tmp_path: Path) -> None:
    assert not stores_lower_case(tmp_path)
    write_identity(tmp_path, Identity(7, "daemon"))
    assert not stores_lower_case(tmp_path)
    write_identity(tmp_path, Identity(7, "daemon", lower_case=True))
    assert stores_lower_case(tmp_path)
    (tmp_path / IDENTITY_NAME).write_text("?")
    assert not stores_lower_case(tmp_path)


def test_an_identity_from_before_sources_were_noted_is_read(tmp_path: Path) -> None:
    (tmp_path / IDENTITY_NAME).write_text('{"version": 1, "server_id": 7, "owner": "daemon", "connections": []}')
    assert read_identity(tmp_path) == Identity(7, "daemon")
