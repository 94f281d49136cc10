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


def put_back(copy: Path, place: Path) -> None:
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
        put_back(old_checkpoint, mirror.checkpoint)
        for _ in range(2):  # the second finds the batch that the first one planned
            with pytest.raises(AssertionError, match=r"ConfigError: the checkpoint .* is older than the targets"):
                mirror.run()
        put_back(newer, mirror.checkpoint)
        put_back(old_lake, lake)
        with pytest.raises(AssertionError, match=r"ConfigError: the targets are older than the checkpoint"):
            mirror.run()
        put_back(old_checkpoint, mirror.checkpoint)
        mirror.run()
        mirror.assert_equal("a")
