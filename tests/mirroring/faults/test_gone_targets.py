"""Targets that something else removed: noticed also where nothing is written to them, and made again when asked for."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_target_that_was_removed_is_noticed_and_made_again_on_request(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, "a", "b", "c")
        mirror = mirrored(primary, "shop")
        mirror.run()
        mirror.workbench.run(f"spark.sql('DROP TABLE {mirror.lake}.b')")
        shutil.rmtree(mirror.workbench.folder / "warehouse" / f"{mirror.lake}.db" / "c")
        primary.sql("INSERT INTO shop.a VALUES (100, 1)")
        mirror.run()
        states = mirror.states()
        assert states.pop("a") == ("current", None)
        mirror.assert_equal("a")
        for table, (state, error) in states.items():
            assert state == "failed"
            assert f"`{table}` does not exist any more" in str(error)
            assert f'mirror_resnapshot(spark, tables=["shop.{table}"]' in str(error)
        mirror.resnapshot("b", "c")
        mirror.run()
        mirror.assert_equal("a", "b", "c")
        assert mirror.states() == dict.fromkeys("abc", ("current", None))
