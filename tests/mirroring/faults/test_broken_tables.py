"""Tables that their server cannot read: suspended with what it says, beside one that comes whole and goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

_PAGE = 16 << 10


def _fill(primary: MariaDb) -> None:
    primary.add_user()
    primary.sql("CREATE DATABASE shop")
    for table, engine in (("crashed", "MyISAM"), ("damaged", "InnoDB"), ("whole", "InnoDB")):
        primary.sql(
            "USE shop",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v CHAR(200)) ENGINE={engine}",
            f"INSERT INTO {table} SELECT seq, REPEAT('x', 200) FROM seq_1_to_5000",
        )
    primary.sql("FLUSH TABLES")


def _cut(file: Path, size: int) -> None:
    with file.open("r+b") as opened:
        opened.truncate(size)


def _clear_pages(file: Path, first: int, count: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(first * _PAGE)
        opened.write(bytes(count * _PAGE))


@pytest.mark.parametrize(("version", "tells"), [("10.5", False), ("11.8", True)])
def test_tables_that_the_server_cannot_read_are_set_aside(
    mirrored: Callable[..., Mirrored], version: str, *, tells: bool
) -> None:
    with MariaDb(version) as primary:
        _fill(primary)
        primary.stop()
        folder = primary.datadir / "shop"
        _cut(folder / "crashed.MYD", 300_000)
        if tells:  # 10.5 ends when it meets such a page
            _clear_pages(folder / "damaged.ibd", 70, 4)
        primary.start()
        mirror = mirrored(primary, "shop", snapshotUnkeyed="whole", snapshotChunkRows=1000)
        mirror.run()
        state, error = mirror.states()["crashed"]
        assert state == "failed"
        assert "while reading table shop.crashed" in str(error)
        assert "marked as crashed" in str(error)
        state, error = mirror.states()["damaged"]
        assert state == ("failed" if tells else "current")
        assert not tells or "Index for table 'damaged' is corrupt" in str(error)
        mirror.assert_equal("whole")

        primary.sql("REPAIR TABLE shop.crashed", "INSERT INTO shop.whole VALUES (0, 'later')")
        mirror.resnapshot("crashed")
        mirror.run()
        mirror.assert_equal("whole", "crashed")
        assert mirror.states()["crashed"] == ("current", None)
