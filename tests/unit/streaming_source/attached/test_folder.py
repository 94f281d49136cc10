"""Whose folder relayDir is: a daemon's is attached to, up or down; everything else is this query's own or an error."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from replica.daemon.status.record import write_status
from replica.errors import ConfigError, RelayError
from replica.options.config import ReplicaConfig
from replica.relay_log.directory.head import HEAD_NAME
from replica.relay_log.directory.identity import DumpThread, Identity, write_identity
from replica.relay_log.directory.lock import RelayLock
from streaming_source.attached import folder as attached
from streaming_source.attached.folder import RECEIVING, attached_directory, primary_of, warn_of_unused
from streaming_source.options.source_options import SourceOptions
from tests.unit.daemon.records import record

if TYPE_CHECKING:
    from pathlib import Path

SERVER = {"host": "db1", "user": "repl"}


def _options(**given: str) -> SourceOptions:
    return SourceOptions.parse({"table": "shop.orders", **given})


def _owned_by(folder: Path, owner: str) -> None:
    write_identity(folder, Identity(77, owner))  # type: ignore[arg-type]


def test_without_a_folder_a_query_runs_its_own_replica() -> None:
    assert attached_directory(_options(**SERVER)) is None


@pytest.mark.parametrize("server", [{}, SERVER], ids=["alone", "with a server"])
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_a_daemons_folder_is_attached_to(tmp_path: Path, server: dict[str, str], *, up: bool) -> None:
    _owned_by(tmp_path, "daemon")
    lock = RelayLock(tmp_path) if up else None
    assert attached_directory(_options(relayDir=str(tmp_path), **server)) == tmp_path
    assert attached_directory(_options(relayDir=f"file://{tmp_path}", **server)) == tmp_path
    if lock:
        lock.close()


def test_a_relative_folder_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _owned_by(tmp_path, "daemon")
    assert attached_directory(_options(relayDir=".")) == tmp_path


def test_another_querys_folder_is_its_own(tmp_path: Path) -> None:
    _owned_by(tmp_path, "embedded")
    assert attached_directory(_options(relayDir=str(tmp_path), **SERVER)) is None
    with pytest.raises(ConfigError, match=r"belongs to a query.*Name the relay_dir of a running mariadb-replica"):
        attached_directory(_options(relayDir=str(tmp_path)))


def test_a_folder_that_nobody_has_used_needs_a_server(tmp_path: Path) -> None:
    new = tmp_path / "new"
    assert attached_directory(_options(relayDir=str(new), **SERVER)) is None
    with pytest.raises(RelayError, match=r"no relay log in .*Start the daemon.* or set host and user"):
        attached_directory(_options(relayDir=str(new)))
    assert not new.exists()


def test_a_log_from_before_folders_had_owners_can_be_read_without_a_server(tmp_path: Path) -> None:
    (tmp_path / HEAD_NAME).write_bytes(b"")
    assert attached_directory(_options(relayDir=str(tmp_path), **SERVER)) is None
    assert attached_directory(_options(relayDir=str(tmp_path))) == tmp_path


@pytest.mark.parametrize("owner", ["daemon", "embedded", None])
def test_a_folder_that_is_just_being_taken_is_looked_at_again(
    tmp_path: Path, owner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that was stopped while it opened its log holds the lock for a moment, and is no daemon."""
    lock = RelayLock(tmp_path)

    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            if owner is not None:
                _owned_by(tmp_path, owner)
            lock.close()

    monkeypatch.setattr(attached, "time", SimpleNamespace(monotonic=lambda: 0.0, sleep=pause))
    found = attached_directory(_options(relayDir=str(tmp_path), **SERVER))
    assert len(pauses) == 2
    assert found == (tmp_path if owner == "daemon" else None)


def test_a_mark_that_comes_between_two_looks_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon marked its folder and stopped after we had read that nobody had, and before we looked at its lock."""

    def came_and_went(_: Path) -> bool:
        _owned_by(tmp_path, "daemon")
        return False

    monkeypatch.setattr(attached, "is_locked", came_and_went)
    assert attached_directory(_options(relayDir=str(tmp_path), **SERVER)) == tmp_path


def test_a_folder_that_stays_unmarked_is_no_daemons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def pause(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(attached, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=pause))
    with RelayLock(tmp_path):
        assert attached_directory(_options(relayDir=str(tmp_path), **SERVER)) is None
    assert now[0] >= attached.UNMARKED_S


def test_the_primary_is_called_what_the_daemon_calls_it(tmp_path: Path) -> None:
    assert primary_of(tmp_path) == ""
    write_identity(tmp_path, Identity(77, "daemon", (DumpThread("db9:3306", 1, 1_700_000_000, 5, "10.0.0.9:4711"),)))
    assert primary_of(tmp_path) == "db9:3306"
    status = record()
    write_status(tmp_path, status)
    assert primary_of(tmp_path) == status.connection.endpoint != ""


def test_options_that_the_daemon_has_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = {**SERVER, "relayDir": str(tmp_path)}
    warn_of_unused(_options(relayDir=str(tmp_path)))
    warn_of_unused(_options(**given))
    assert not caplog.records
    warn_of_unused(_options(**given, semiSync="true", relayMaxFileAge="1h"))
    assert "and relayMaxFileAge, semiSync of this query has no effect" in caplog.text
    assert {"password", "tls", "host"}.isdisjoint(RECEIVING)
    assert set(ReplicaConfig.model_fields) >= RECEIVING
