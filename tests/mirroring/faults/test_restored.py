"""A checkpoint or targets that are put back from an older copy: refused, and right again with all of one moment."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


def restore(copy: Path, place: Path) -> None:
    shutil.rmtree(place)
    shutil.copytree(copy, place)


def test_copies_of_two_moments_are_refused_and_those_of_one_go_on(
    mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    with MariaDb("11.8") as primary:
        primary.add_user()
        primary.sql(
            "CREATE DATABASE shop", "USE shop", "CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)"
        )
        lake = tmp_path / "lake"
        mirror = mirrored(primary, "shop", into=f"{lake}/{{table}}")
        mirror.run()
        moments = []
        for number in (2, 3):
            copies = tmp_path / f"checkpoint-{number}", tmp_path / f"lake-{number}"
            shutil.copytree(mirror.checkpoint, copies[0])
            shutil.copytree(lake, copies[1])
            moments.append(copies)
            primary.sql(f"INSERT INTO shop.a VALUES ({number})")
            mirror.run()
        (old_checkpoint, old_lake), _ = moments
        primary.sql("INSERT INTO shop.a VALUES (4)")
        newer = tmp_path / "newer"
        shutil.copytree(mirror.checkpoint, newer)
        restore(old_checkpoint, mirror.checkpoint)
        for _ in range(2):  # the second finds the batch that the first one planned
            with pytest.raises(AssertionError, match=r"ConfigError: the checkpoint .* is older than the targets"):
                mirror.run()
        restore(newer, mirror.checkpoint)
        restore(old_lake, lake)
        with pytest.raises(AssertionError, match=r"ConfigError: the targets are older than the checkpoint"):
            mirror.run()
        restore(old_checkpoint, mirror.checkpoint)
        mirror.run()
        mirror.assert_equal("a")


_ANOTHER_RUN = """
from streaming_source import mirror
from streaming_source.mirroring.control import continuation
kept, continuation.CHECK_EVERY_S = continuation.CHECK_EVERY_S, 0
query = mirror(spark, **{arguments!r})
try:
    query.processAllAvailable()
    spark.sql("UPDATE {control} SET batch = batch + 1, position = '0-1-999'")
    {change}
    result = query.awaitTermination(120)
finally:
    continuation.CHECK_EVERY_S = kept
    query.stop()
"""


def test_a_run_beside_another_one_ends(mirrored: Callable[..., Mirrored], tmp_path: Path) -> None:
    with MariaDb("11.8") as primary:
        primary.add_user()
        primary.sql(
            "CREATE DATABASE shop", "USE shop", "CREATE TABLE a (id INT PRIMARY KEY)", "INSERT INTO a VALUES (1)"
        )
        mirror = mirrored(primary, "shop", into=f"{tmp_path}/lake/{{table}}", trigger=None)
        connected = {"host": primary.host, "port": primary.port, "user": "root", "password": primary.password}
        change = (
            f"import pymysql; pymysql.connect(autocommit=True, **{connected!r}).query('INSERT INTO shop.a VALUES (2)')"
        )
        control = f"delta.`{tmp_path}/lake/mirror_control`"
        code = _ANOTHER_RUN.format(arguments=mirror.arguments, control=control, change=change)
        with pytest.raises(AssertionError, match="ConfigError: another run of this mirror writes"):
            mirror.workbench.run(code)
