"""docker-compose.yml's primary in a real container engine: healthy, ready to replicate from, and semi-synchronous."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.container

PROJECT = Path(__file__).resolve().parents[2]


def compose(*arguments: str, port: int) -> str:
    command = ["docker", "compose", "--project-name", f"primary-{port}", *arguments]
    environment = os.environ | {"PRIMARY_PORT": str(port)}
    done = subprocess.run(command, cwd=PROJECT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = int(probe.getsockname()[1])
    try:
        compose("up", "--detach", "--wait", "primary", port=free)
        yield free
    finally:
        compose("down", "--volumes", "--timeout", "5", port=free)


def test_the_account_may_replicate_from_it(port: int) -> None:
    options = ["--host", f"127.0.0.1:{port}", "--user", "repl"]
    done = subprocess.run(
        [sys.executable, "-m", "replica", "check", *options],
        cwd=PROJECT,
        env=os.environ | {"MARIADB_REPLICA_PASSWORD": "replica-secret"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "ready to replicate" in done.stdout


def test_it_is_set_up_as_the_readme_asks(port: int) -> None:
    connection = pymysql.connect(host="127.0.0.1", port=port, user="root", password="root")
    with connection, connection.cursor() as cursor:
        cursor.execute(
            "SELECT @@binlog_format, @@binlog_row_metadata, @@rpl_semi_sync_master_enabled, @@gtid_strict_mode"
        )
        assert cursor.fetchone() == ("ROW", "FULL", 1, 1)
