from __future__ import annotations

import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from replica.commands.check import machine as disk_module
from replica.commands.check.machine import disk
from tests.unit.commands.check.facts import config

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def half_a_terabyte_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the disk of the tests has."""
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=512 << 30))


def states(directory: Path, **options: object) -> dict[str, str]:
    return {one.check: one.state for one in disk(config(relay_dir=directory, **options), directory)}


def test_room_against_what_is_asked_for(tmp_path: Path) -> None:
    assert states(tmp_path, min_free_bytes="1k", relay_max_bytes="600m", retain_bytes="100m")["disk"] == "ok"
    assert states(tmp_path, min_free_bytes="1000t")["disk"] == "missing"
    assert states(tmp_path, min_free_bytes="1k", relay_max_bytes="1000t")["disk"] == "warning"


def test_a_log_that_is_large_already_needs_no_room_for_it(tmp_path: Path) -> None:
    with (tmp_path / "relay.000001").open("wb") as file:
        file.truncate(1000 << 30)  # of holes
    (one,) = [
        one
        for one in disk(config(relay_dir=tmp_path, min_free_bytes="1k", relay_max_bytes="1000g"), tmp_path)
        if one.check == "disk"
    ]
    assert (one.state, "has 1000 GiB" in one.what) == ("ok", True)


def test_a_directory_yet_to_be_made_is_on_the_disk_of_its_parent(tmp_path: Path) -> None:
    assert states(tmp_path / "a" / "b", min_free_bytes="1000t")["disk"] == "missing"
    assert list(tmp_path.iterdir()) == []


def test_keeping_more_than_there_may_be(tmp_path: Path) -> None:
    assert states(tmp_path, retain_bytes="4g")["retain_bytes"] == "warning"
    assert states(tmp_path, retain_bytes="4g", slow_readers="pause")["retain_bytes"] == "warning"
    assert "retain_bytes" not in states(tmp_path)


def test_the_speed_is_measured_where_commits_wait_for_it(tmp_path: Path) -> None:
    assert "disk speed" not in states(tmp_path)
    assert "disk speed" not in states(tmp_path, semi_sync=True, ack_policy="receive")
    (one,) = [one for one in disk(config(semi_sync=True), tmp_path) if one.check == "disk speed"]
    assert "fdatasync takes" in one.what
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("kind", "state"), [("tmpfs", "warning"), ("nfs4", "warning"), ("ext4", None), ("xfs", None)])
def test_the_file_system_of_the_longest_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, state: str | None
) -> None:
    place = tmp_path / "with space"
    place.mkdir()
    mounts = tmp_path / "mounts"
    escaped = str(place).replace(" ", "\\040")
    mounts.write_text(f"a / overlay rw 0 0\nb {escaped} {kind} rw 0 0\nc {tmp_path} zfs rw 0 0\n")
    monkeypatch.setattr(disk_module, "MOUNTS", mounts)
    assert states(place).get("file system") == state
    assert states(place / "deeper").get("file system") == state
