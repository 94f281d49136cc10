"""Default relay folders: private, found again by the same query, and never shared by two."""

from __future__ import annotations

import stat
import tempfile
from typing import TYPE_CHECKING

import pytest

from replica.errors import RelayError
from replica.relay_log.directory.lock import RelayLock
from streaming_source.driver.deployment import is_free, relay_directory
from streaming_source.options.source_options import SourceOptions

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def _own_temp_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def _options(**more: str) -> SourceOptions:
    return SourceOptions.parse({"user": "repl", "table": "shop.orders", "host": "db1", "password": "hunter2"} | more)


def test_the_same_query_finds_its_folder_again_and_another_query_has_another() -> None:
    folder = relay_directory(_options())
    assert relay_directory(_options(maxBytesPerTrigger="1m")) == folder
    assert relay_directory(_options(table="shop.lines")) != folder
    assert relay_directory(_options(host="db2")) != folder
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE(folder.parent.stat().st_mode) == 0o700


def test_a_locked_folder_is_somebody_elses() -> None:
    folder = relay_directory(_options())
    with RelayLock(folder):
        assert not is_free(folder)
        second = relay_directory(_options())
        assert second != folder
        with RelayLock(second):
            assert relay_directory(_options()) not in (folder, second)
    assert relay_directory(_options()) == folder


def test_a_folder_others_can_write_is_refused(tmp_path: Path) -> None:
    base = relay_directory(_options()).parent
    base.chmod(0o777)
    with pytest.raises(RelayError, match="not a private folder"):
        relay_directory(_options())
    assert base.parent == tmp_path


def test_a_link_in_its_place_is_refused(tmp_path: Path) -> None:
    base = relay_directory(_options()).parent
    target = tmp_path / "elsewhere"
    base.rename(target)
    base.symlink_to(target)
    with pytest.raises(RelayError, match="not a private folder"):
        relay_directory(_options())


def test_a_folder_of_the_users_own_is_taken_as_it_is(tmp_path: Path) -> None:
    assert relay_directory(_options(relayDir=str(tmp_path / "mine"))) == tmp_path / "mine"
