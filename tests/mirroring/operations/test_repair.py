"""Audits of a mirror: faults in a target are found and repaired by the mirror, and newer changes are left alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fixtures.mariadb import MariaDb

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(900)]

AUDIT = """
from streaming_source import audit
found = audit(spark, mirror={control!r}, repair={repair}, **{server!r})
result = [found.equal, {{k: n for k, n in found.tables[0].counts.items() if n}}, found.tables[0].repair]
"""
LAST = """
from streaming_source import mirror_status
result = [row.audit for row in mirror_status(spark, control={control!r}).collect()]
"""
FAULTS = (
    "UPDATE {target} SET t = 'wrong' WHERE id IN (3, 4)",
    "DELETE FROM {target} WHERE id IN (5, 6)",
    "INSERT INTO {target} SELECT * FROM {target} WHERE id = 7",
    "INSERT INTO {target} SELECT id + 1000, v, d, t, at FROM {target} WHERE id IN (8, 9)",
)


@pytest.mark.quick_on("ends")
def test_faults_are_repaired_and_newer_changes_stay(server_version: str, mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb(server_version) as primary:
        primary.add_user()
        primary.sql(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.a (id INT PRIMARY KEY, v DOUBLE, d DECIMAL(30,10), t TIME(3), at DATETIME(6))",
            "USE shop",
            "INSERT INTO a SELECT seq, seq / 3, seq / 7, SEC_TO_TIME(seq), NOW(6) FROM seq_1_to_300",
        )
        mirror = mirrored(primary, "shop")
        mirror.run()
        control = f"{mirror.lake}.mirror_control"
        server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
        for statement in FAULTS:
            mirror.workbench.run(f"spark.sql({statement.format(target=f'{mirror.lake}.a')!r})")
        asked = mirror.workbench.run(AUDIT.format(control=control, server=server, repair=True))
        assert asked == [
            False,
            {"missing": 2, "extra": 2, "different": 2, "doubled": 1},
            "the mirror was asked for the repair",
        ]
        # What the audit found is changed meanwhile, so that its rows are old: missing, wrong and extra ones.
        primary.sql(
            "USE shop",
            "UPDATE a SET v = -1 WHERE id IN (4, 6)",
            "DELETE FROM a WHERE id = 3",
            "INSERT INTO a VALUES (1008, 1, 1, '00:00:01', '2026-11-23'), (400, 1, 1, '00:00:01', NULL)",
        )
        mirror.run()
        # By what both sides print alike.
        rows = f"spark.table('{mirror.lake}.a').selectExpr('id', 'CAST(d AS STRING)').sort('id').collect()"
        there = primary.sql("SELECT id, CAST(d AS CHAR) FROM shop.a ORDER BY id")
        assert mirror.workbench.run(f"result = [list(row) for row in {rows}]") == [list(row) for row in there]
        assert mirror.workbench.run(LAST.format(control=control)) == ["repaired"]
        assert mirror.workbench.run(AUDIT.format(control=control, server=server, repair=False)) == [True, {}, None]
        assert mirror.workbench.run(LAST.format(control=control)) == ["equal"]
