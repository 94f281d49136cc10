from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from replica.protocol.constants import RowsFlag
from streaming_source.mirroring.batch.manifest import DELETES, INSERTS, UNCHECKED, UPDATES, TouchedTables, read_manifest
from streaming_source.rows.partition import ChangePartition, MappedRange
from streaming_source.rows.read_plan import ReadPlan
from streaming_source.selection.resolver import SelectedTables
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from pathlib import Path

STATEMENTS = (
    "CREATE DATABASE shop",
    "USE shop",
    "CREATE TABLE a (id INT PRIMARY KEY)",
    "CREATE TABLE b (id INT PRIMARY KEY)",
    "INSERT INTO a VALUES (1), (2)",
    "INSERT INTO b VALUES (1), (2)",
    "UPDATE b SET id = 3 WHERE id = 1",
    "SET SESSION foreign_key_checks = 0",
    "DELETE FROM a WHERE id = 1",
)


@pytest.mark.server
def test_a_server_says_whether_foreign_keys_counted(server_version: str, tmp_path: Path) -> None:
    with MariaDb(server_version) as primary:
        primary.sql(*STATEMENTS)
        primary.stop()
        (binlog,) = sorted(primary.datadir.glob("*bin.000001"))
        copy = tmp_path / binlog.name
        copy.write_bytes(binlog.read_bytes())
    plan = ReadPlan("variant", SelectedTables(("shop.a",), {}), None, "")
    part = MappedRange(str(copy), 4, copy.stat().st_size, checksum=True, file=copy.name)
    (batch,) = read_manifest(ChangePartition((part,)), plan)
    rows: list[dict[str, Any]] = batch.to_pylist()
    assert {row["table"]: row["touched"] for row in rows if row["touched"] is not None} == {
        "a": INSERTS | DELETES | UNCHECKED,
        "b": INSERTS | UPDATES,
    }
    assert RowsFlag.NO_FOREIGN_KEY_CHECKS == 2
    assert TouchedTables().bits == {}
