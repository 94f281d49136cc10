"""A full disk: the error says which, and with room the mirror goes on."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.fixtures.small_disk import MountRefusedError, small_disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


def fill(disk: Path) -> Path:
    """Fill a disk to the last byte."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return filler


@pytest.mark.parametrize(("full", "writer"), [("control", None), ("targets", None), ("targets", "spark")])
def test_a_full_disk_is_named(full: str, writer: str | None, mirrored: Callable[..., Mirrored], tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        try:
            place = stack.enter_context(small_disk(tmp_path, 4))
        except MountRefusedError as error:
            pytest.skip(f"no small disk here: {error}; the unit test of faults.py has the words that are met")
        primary = stack.enter_context(MariaDb("11.8"))
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "USE shop")
        for table in "ab":
            primary.sql(
                f"CREATE TABLE shop.{table} (id INT PRIMARY KEY, v INT)",
                f"INSERT INTO shop.{table} SELECT seq, seq FROM shop.seq_1_to_30",
            )
        where = {"control": str(place / "control")} if full == "control" else {"into": f"{place}/{{table}}"}
        if full == "targets":
            where["control"] = str(tmp_path / "control")
        where |= {"writer": writer} if writer else {}
        mirror = mirrored(primary, "shop", **where)
        mirror.run()
        filler = fill(place)
        primary.sql("UPDATE shop.a SET v = v + 1", "UPDATE shop.b SET v = v + 1")
        what = "the control table" if full == "control" else str(place)
        with pytest.raises(AssertionError, match=rf"DiskFullError: a disk is full, .*{what}.*{place}") as met:
            mirror.run()
        assert "Free space on the disk" in str(met.value)
        filler.unlink()
        mirror.run()
        mirror.assert_equal("a", "b")
