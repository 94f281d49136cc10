from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from replica.commands.check.run import check_all
from tests.unit.commands.check.facts import config

if TYPE_CHECKING:
    from pathlib import Path

NOBODY = "127.0.0.1:1,[::1]:1"


async def test_each_server_has_its_own_error_and_the_machine_is_looked_at_all_the_same(tmp_path: Path) -> None:
    *servers, here = await check_all(config(host=NOBODY, relay_dir=tmp_path, min_free_bytes="1m"), {})
    assert [(report.subject, report.error and report.error.exit_code) for report in servers] == [
        ("127.0.0.1:1", 40),
        ("[::1]:1", 40),
    ]
    assert here.error is None
    assert {"relay_dir", "disk", "kernels", "descriptors"} <= {one.check for one in here.results}
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize("name", ["relay.identity", "relay.head"])
async def test_damaged_files_of_the_relay_log_are_told(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no such thing" * 1000)
    *_, here = await check_all(config(host=NOBODY, relay_dir=tmp_path), {})
    assert here.error is not None
    assert here.error.exit_code == 70
    assert name in here.error.message
    assert here.error.hint


async def test_a_taken_address_is_a_matter_of_configuration(tmp_path: Path) -> None:
    *_, here = await check_all(config(host=NOBODY, relay_dir=tmp_path, http_listen="192.0.2.1:9306"), {})
    assert here.error is not None
    assert here.error.exit_code == 20


async def test_where_the_password_comes_from_is_looked_at() -> None:
    *_, here = await check_all(config(host=NOBODY, password="x"), {"password": "--password"})
    assert [one.state for one in here.results if one.check == "password"] == ["warning"]
