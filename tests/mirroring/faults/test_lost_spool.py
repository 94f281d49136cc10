"""The files of a batch's snapshot rows are lost before the batch is committed, and statements changed its tables.

The batch is in the checkpoint, so its rows must be the same in every attempt, and those of changed tables cannot be.
Only these tables are re-snapshotted; each mode ends equal to the server.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final

import pytest

from streaming_source.mirroring import sink
from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

RULES: Final = {
    "shop.soft": {"mode": "soft_delete"},
    "shop.history": {"mode": "history"},
    "shop.log": {"mode": "append_log"},
}
MODES: Final = ("current", "soft", "history", "log")
OTHERS: Final = ("altered", "dropped", "kept", "renamed")

_BEFORE_ROWS: Final = f"""
import {sink.__name__} as sink
facts_of = sink.collect_facts
def broken(batch):
    facts = facts_of(batch)
    if any(table.reads for table in facts.tables.values()):
        raise RuntimeError("this batch is broken off")
    return facts
sink.collect_facts = broken
"""
_MENDED: Final = "sink.collect_facts = facts_of"


def change(primary: MariaDb) -> None:
    """Change all tables but one by statements, and then give them other rows."""
    primary.sql(
        "USE shop",
        *(f"TRUNCATE {table}" for table in MODES),
        *(f"REPLACE INTO {table} SELECT seq, -seq FROM seq_1_to_5" for table in (*MODES, "altered")),
        "ALTER TABLE altered ADD w INT DEFAULT 3",
        "DROP TABLE dropped",
        "RENAME TABLE renamed TO zz_renamed",
        "UPDATE kept SET v = v + 1 WHERE id < 9",
    )


@pytest.mark.parametrize("rows_are_in", [False, True], ids=["before-rows", "after-rows"])
def test_tables_whose_rows_cannot_be_read_again_are_re_snapshotted_alone(
    mirrored: Callable[..., Mirrored], tmp_path: Path, *, rows_are_in: bool
) -> None:
    with MariaDb("11.8") as primary:
        fill_shop(primary, *MODES, *OTHERS)
        mirror = mirrored(primary, "shop", rules=RULES)
        if rows_are_in:
            mirror.break_off()
        else:
            with pytest.raises(AssertionError, match="this batch is broken off"):
                mirror.run(before=_BEFORE_ROWS)
            mirror.workbench.run(_MENDED)
        spools = list(tmp_path.glob("**/*.tables"))
        assert spools, "the batch has files"
        for spool in spools:
            shutil.rmtree(spool)
        change(primary)
        mirror.run()
        mirror.run()
        live = (*MODES, "altered", "kept", "zz_renamed")
        states = mirror.states()
        assert {name: states[name] for name in live} == dict.fromkeys(live, ("current", None))
        assert states["dropped"][0] == "dropped"
        mirror.assert_equal("current", "altered", "kept", "zz_renamed")
        for table in ("soft", "history"):
            now = [row[:2] for row in mirror.target(table) if row[2] == "False" or row[3] is None]
            assert now == mirror.source(table), table
        assert mirror.times_made("kept") == 1, "its rows could be read again"
        assert mirror.times_made("altered") == 2, "and those of a table that was altered could not"
