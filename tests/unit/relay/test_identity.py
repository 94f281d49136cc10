from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from replica.errors import DiskFullError, RelayError
from replica.relay.identity import (
    IDENTITY_NAME,
    MAX_CONNECTIONS,
    Connection,
    Identity,
    read_identity,
    take_identity,
    write_identity,
)

if TYPE_CHECKING:
    from pathlib import Path

LAST = Connection("db1:3306", 1, 1_700_000_000, 42, "10.0.0.9:5555")


def test_a_drawn_id_is_kept_and_a_configured_one_replaces_it(tmp_path: Path) -> None:
    assert read_identity(tmp_path) is None
    assert take_identity(tmp_path, drawn=7, configured=False, owner="embedded") == Identity(7, "embedded")
    assert take_identity(tmp_path, drawn=8, configured=False, owner="daemon") == Identity(7, "daemon")
    assert read_identity(tmp_path) == Identity(7, "daemon")
    assert take_identity(tmp_path, drawn=9, configured=True, owner="daemon").server_id == 9
    assert read_identity(tmp_path) == Identity(9, "daemon")


def test_the_last_connection_survives_a_new_start(tmp_path: Path) -> None:
    write_identity(tmp_path, Identity(7, "daemon", (LAST,)))
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
    write_identity(tmp_path, Identity(7, "daemon", (LAST,)))
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
    other = replace(LAST, server_id=2)
    identity = identity.with_connection(other).with_connection(again)
    assert identity.connections == (other, again)
    assert identity.without_connection(1).connections == (other,)
    for number in range(100, 200):
        identity = identity.with_connection(replace(LAST, server_id=number))
    assert len(identity.connections) == MAX_CONNECTIONS
    assert identity.connections[-1].server_id == 199
