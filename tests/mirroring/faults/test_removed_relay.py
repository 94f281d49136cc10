"""A relay log that was removed while its mirror was stopped: fetched again, or told that it cannot be."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]


def remove_relay_log(mirror: Mirrored) -> None:
    shutil.rmtree(mirror.arguments["relayDir"])


def purge(primary: MariaDb) -> None:
    """Have the primary remove all binlogs but a new one, and see that it did."""
    before = primary.binlogs()
    primary.sql("FLUSH BINARY LOGS")
    primary.purge_binlogs()
    assert not set(before) & set(primary.binlogs())


def change(primary: MariaDb, number: int) -> None:
    primary.sql("USE shop", f"INSERT INTO a VALUES ({100 + number}, 1)", f"UPDATE b SET v = -1 WHERE id = {number}")


def test_what_the_primary_still_has_is_fetched_again(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, "a", "b")
        mirror = mirrored(primary, "shop")
        mirror.run()
        change(primary, 1)
        remove_relay_log(mirror)
        mirror.run()
        mirror.assert_equal("a", "b")
        change(primary, 2)
        mirror.break_off()  # the batch comes again
        remove_relay_log(mirror)
        mirror.run()
        mirror.assert_equal("a", "b")
        assert mirror.states() == dict.fromkeys("ab", ("current", None))


@pytest.mark.parametrize("version", ["10.5", "11.8"])
@pytest.mark.parametrize("planned", [False, True])
def test_what_the_primary_has_removed_too_ends_the_mirror_and_its_advice_holds(
    version: str, *, planned: bool, mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    """`planned`: the batch that needs it was begun before."""
    with MariaDb(version) as primary:
        fill_shop(primary, "a", "b")
        mirror = mirrored(primary, "shop")
        mirror.run()
        change(primary, 1)
        if planned:
            mirror.break_off()
        remove_relay_log(mirror)
        purge(primary)
        change(primary, 2)
        for _ in range(2):
            with pytest.raises(AssertionError) as failed:
                mirror.run()
            told = str(failed.value)
            assert "PositionPurgedError: the transactions after 0-1-" in told
            assert f"are not in the relay log {mirror.arguments['relayDir']}" in told
            assert "and the server has removed them" in told
            assert "A mirror has neither option: drop its control table and its targets, and name a new" in told
        lake = mirror.lake
        mirror.workbench.run(
            "\n".join(f"spark.sql('DROP TABLE {lake}.{name}')" for name in ("mirror_control", "a", "b"))
        )
        mirror.run(checkpointLocation=str(tmp_path / "new"))
        mirror.assert_equal("a", "b")
        assert mirror.states() == dict.fromkeys("ab", ("current", None))
