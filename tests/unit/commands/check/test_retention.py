from __future__ import annotations

import dataclasses

import pytest

from replica.commands.check.server import lag, retention
from replica.handshake.primary.progress import ListedBinlog
from tests.unit.commands.check.facts import GOOD, INFO, end, primary, variables

FILES = (ListedBinlog("bin.000002", 1 << 20), ListedBinlog("bin.000003", 5000))


@pytest.mark.parametrize(
    ("changed", "state", "word"),
    [
        ({}, "ok", "after 10 d"),
        ({"expiry_s": 7200.0}, "warning", "after 2 h"),
        ({"expiry_s": None}, "note", "never"),
        ({"expiry_s": None, "max_total_bytes": 1 << 30}, "ok", "beyond 1 GiB"),
        ({"max_total_bytes": 1 << 30}, "ok", "after 10 d and beyond 1 GiB"),
    ],
)
def test_what_the_server_removes_by_itself(changed: dict[str, object], state: str, word: str) -> None:
    (one,) = retention(primary(**changed))
    assert (one.state, word in one.what) == (state, True), one
    assert bool(one.fix) == (state != "ok")


def test_the_fix_is_spelled_for_the_version() -> None:
    facts = primary(expiry_s=3600.0)
    (new,) = retention(facts)
    assert "SET GLOBAL binlog_expire_logs_seconds = 864000;" in new.fix
    old = dataclasses.replace(facts, info=dataclasses.replace(INFO, version="10.5.29-MariaDB"))
    (one,) = retention(old)
    assert "SET GLOBAL expire_logs_days = 10;" in one.fix


def test_a_server_that_purges_only_while_replicas_are_there() -> None:
    (one,) = retention(variables(slave_connections_needed_for_purge="1"))
    assert "at least 1 replica" in one.what


def test_a_relay_log_that_has_everything() -> None:
    assert [one.state for one in lag(GOOD, end("0-1-100"))] == ["ok"]


@pytest.mark.parametrize(
    ("expiry_s", "age_s", "state", "word"),
    [
        (86_400.0, 3600.0, "note", "for at least 23 h more"),
        (86_400.0, 20 * 3600.0, "warning", "for at least 4 h more"),
        (7200.0, 3 * 3600.0, "warning", "at any moment"),
        (None, 3 * 3600.0, "note", "3 h old"),
    ],
)
def test_the_time_that_is_left(expiry_s: float | None, age_s: float, state: str, word: str) -> None:
    (one,) = lag(primary(expiry_s=expiry_s), end(age_s=age_s))
    assert (one.state, word in one.what) == (state, True), one
    assert "up to 10 transactions" in one.what


@pytest.mark.parametrize(
    ("total", "state", "word"),
    [
        (1 << 30, "note", "until 1023 MiB more are written"),
        (2 << 20, "warning", "SET GLOBAL max_binlog_total_size = 4194304;"),
        (1 << 20, "warning", "at any moment"),
    ],
)
def test_the_room_that_is_left(total: int, state: str, word: str) -> None:
    facts = dataclasses.replace(primary(expiry_s=None, max_total_bytes=total), binlogs=FILES)
    (one,) = lag(facts, end(at=("bin.000002", 4)))
    assert (one.state, word in one.what + one.fix) == (state, True), one


def test_bytes_are_counted_in_one_file_or_with_the_list_of_files() -> None:
    (one,) = lag(GOOD, end())
    assert "1000 B" in one.what
    (far,) = lag(GOOD, end(at=("bin.000002", 4)))
    assert "KiB" not in far.what
    (listed,) = lag(dataclasses.replace(GOOD, binlogs=FILES), end(at=("bin.000002", 4)))
    assert "1.005 MiB" in listed.what
