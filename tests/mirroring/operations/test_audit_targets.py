"""Audits of targets read by one task and by Spark's Delta: equal, with a missing file, and with an empty binlog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming_source.auditing.call import audit
from streaming_source.sinks import delta_folders
from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = ("whole", "damaged", "dropped_column")
AUDIT = (
    f"from {audit.__module__} import {audit.__name__}\n"
    f"import {delta_folders.__name__} as delta_folders\n"
    """
small, delta_folders.SMALL_BYTES = delta_folders.SMALL_BYTES, {small}
found = audit(spark, mirror={control!r}, record=False, **{server!r})
delta_folders.SMALL_BYTES = small
result = [
    found.position,
    {{t.table: [t.equal, t.source_rows, t.target_rows, t.version] for t in found.tables}},
    {{left.table: left.reason for left in found.left_out}},
]
"""
)


@pytest.fixture
def unlogged() -> Iterator[MariaDb]:
    """A server whose tables are not in its binlog, which is empty."""
    with MariaDb("11.8", "--binlog-row-metadata=FULL") as running:
        running.add_user()
        running.sql("CREATE DATABASE shop")
        for table in TABLES:
            running.sql(
                "USE shop",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v DOUBLE, t VARCHAR(20))",
                f"INSERT INTO {table} SELECT seq, seq / 3, seq FROM seq_1_to_100",
            )
        running.reset_master()
        yield running


def test_each_reader_finds_what_is_equal_and_leaves_out_what_lacks_a_file(
    mirrored: Callable[..., Mirrored], unlogged: MariaDb
) -> None:
    mirror = mirrored(unlogged, "shop")
    server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}

    def audited(small: int = delta_folders.SMALL_BYTES) -> list[Any]:
        code = AUDIT.format(control=f"{mirror.lake}.mirror_control", server=server, small=small)
        found: list[Any] = mirror.workbench.run(code)
        return found

    mirror.run()
    position, equal, left = audited()
    assert (position, left) == ("", {})
    assert {table: found[:3] for table, found in equal.items()} == {f"shop.{name}": [True, 100, 100] for name in TABLES}
    unlogged.sql(
        "USE shop",
        "UPDATE whole SET v = -0.0 WHERE id = 5",
        "DELETE FROM whole WHERE id = 7",
        "ALTER TABLE dropped_column DROP COLUMN t",
        "INSERT INTO dropped_column VALUES (101, NULL)",
    )
    position, equal, left = audited()  # of the rows before the first transaction
    assert equal["shop.whole"][:3] == [True, 100, 100]
    assert "was altered after" in left["shop.dropped_column"]

    mirror.run()
    folder = mirror.workbench.folder / "warehouse" / f"{mirror.lake}.db" / "damaged"
    for file in folder.glob("**/*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()
    small = audited()
    for found in (small, audited(0)):
        position, equal, left = found
        assert position == unlogged.gtid_binlog_pos()
        assert {table: counts[:3] for table, counts in equal.items()} == {
            "shop.whole": [True, 99, 99],
            "shop.dropped_column": [True, 101, 101],
        }
        assert equal == small[1]
        assert list(left) == ["shop.damaged"]
    assert "DataLossError" in small[2]["shop.damaged"]
    assert "re-snapshot the table" in small[2]["shop.damaged"]
