"""A catalog whose files are away for a while: the query ends with an error, and the next start loses nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


def test_what_came_while_the_catalog_was_away_is_brought_in_behind_it(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("10.11") as primary:
        fill_shop(primary, "a", "b")
        mirror = mirrored(primary, "shop")
        mirror.run()
        primary.sql("USE shop", "UPDATE a SET v = -1 WHERE id < 5", "ALTER TABLE b ADD COLUMN w INT DEFAULT 3")
        lake = mirror.workbench.folder / "warehouse" / f"{mirror.lake}.db"
        away = lake.with_name("away")
        lake.rename(away)
        refused = r"ConfigError: the checkpoint .* is in use, but .*mirror_control"
        try:
            for _ in range(2):
                with pytest.raises(AssertionError, match=refused):
                    mirror.run()
        finally:
            away.rename(lake)
        mirror.run()
        mirror.assert_equal("a", "b")
        assert mirror.states() == dict.fromkeys("ab", ("current", None))
