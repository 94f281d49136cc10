"""Tables that are read again by a driver that ends between their rows and the control table: each row is there once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

RULES = {"shop.soft": {"mode": "soft_delete"}, "shop.hashed": {"hash": ["v"], "where": "id <> 7"}}


def test_rows_that_were_appended_to_a_target_made_new_are_not_there_twice(
    mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    """Nothing in the target tells that append from another one: what keeps it from coming twice is the new target."""
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    key.chmod(0o600)
    with MariaDb("11.8") as primary:
        fill_shop(primary, "keyed", "soft", "hashed")
        primary.sql("USE shop", "CREATE TABLE bare (v INT)", "INSERT INTO bare SELECT seq MOD 5 FROM seq_1_to_30")
        mirror = mirrored(primary, "shop", rules=RULES, hashKeyFile=str(key), snapshotUnkeyed="whole")
        mirror.run()
        primary.sql("DELETE FROM shop.soft WHERE id = 3")
        mirror.run()
        for _ in range(2):
            mirror.break_off(resnapshot="shop.*@monday")
            assert "WRITE" in since_made(mirror, "keyed"), "its rows are appended"
            assert len(mirror.target("keyed")) == 30
            primary.sql("USE shop", "UPDATE keyed SET v = v + 1 WHERE id < 9", "INSERT INTO bare VALUES (1), (NULL)")
        mirror.run(resnapshot="shop.*@monday")
        assert mirror.states() == dict.fromkeys(("keyed", "soft", "hashed", "bare"), ("current", None))
        mirror.assert_equal("keyed", "bare")
        hashed, soft = mirror.target("hashed"), mirror.target("soft")
        assert [row[0] for row in hashed] == sorted(str(number) for number in range(1, 31) if number != 7)
        assert len({row[1] for row in hashed}) == 29
        assert [row[0] for row in soft if row[2] == "True"] == ["3"]
        assert [row[:2] for row in soft if row[2] == "False"] == mirror.source("soft")


def test_changes_in_the_batch_that_reads_a_kept_target_again_make_no_row_twice(
    mirrored: Callable[..., Mirrored],
) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, "soft")
        mirror = mirrored(primary, "shop", rules={"shop.soft": {"mode": "soft_delete"}})
        mirror.run()
        primary.sql("UPDATE shop.soft SET v = v + 1 WHERE id < 9", "DELETE FROM shop.soft WHERE id = 20")
        mirror.break_off(resnapshot="shop.soft@monday")
        mirror.run(resnapshot="shop.soft@monday")
        assert mirror.states() == {"soft": ("current", None)}
        soft = mirror.target("soft")
        assert [row[0] for row in soft if row[2] == "True"] == ["20"]
        assert [row[:2] for row in soft if row[2] == "False"] == mirror.source("soft")


def since_made(mirror: Mirrored, table: str) -> list[str]:
    """What Delta says of the commits of a target since it was made new last."""
    done = mirror.operations(table)
    last = max(number for number, one in enumerate(done) if one.startswith("CREATE"))
    return done[last + 1 :]
