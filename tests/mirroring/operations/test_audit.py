"""Audits of targets with modes and rules: equal as they are, and one wrong row of each is found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streaming_source.auditing.call import audit
from streaming_source.mirroring.control.metrics import metric_prefix
from tests.fixtures.mariadb import MariaDb
from tests.mirroring.mirrors import PEOPLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

RULES = {
    "shop.soft": {"mode": "soft_delete"},
    "shop.versions": {"mode": "history", "leaveOut": ["w"]},
    "shop.log": {"mode": "append_log"},
    "shop.people": {
        "leaveOut": ["secret"],
        "mask": {"card": "xxxx", "pin": None},
        "hash": ["email", "born", "code"],
        "where": "country = 'DE' AND at < '20:00:00'",
        "rename": {"id": "number", "email": "email hash", "at": "o'clock"},
    },
}
FAULTS = {
    "soft": "UPDATE {target} SET v = -7 WHERE id = 5",
    "versions": "DELETE FROM {target} WHERE id = 5 AND _current",
    "people": "UPDATE {target} SET `email hash` = sha2('another', 256) WHERE number = 3",
}
AUDIT = (
    f"from {audit.__module__} import {audit.__name__}"
    """
found = audit(spark, mirror={control!r}, **{more!r})
result = [
    {{t.table: [t.source_rows, {{k: n for k, n in t.counts.items() if n}}, t.repair] for t in found.tables}},
    {{left.table: left.reason for left in found.left_out}},
    str(found),
]
"""
)


@pytest.mark.quick_on("newest")
def test_targets_with_modes_and_rules_are_compared_with_what_they_have_to_hold(
    server_version: str, mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    key, other = tmp_path / "key", tmp_path / "other"
    for file, text in ((key, "k" * 32), (other, "o" * 32)):
        file.write_text(text, encoding="utf-8")
        file.chmod(0o600)
    with MariaDb(server_version, "--binlog-row-metadata=FULL") as primary:
        primary.add_user()
        primary.sql(
            "CREATE DATABASE shop CHARACTER SET utf8mb4",
            "USE shop",
            *PEOPLE,
        )
        for table in ("soft", "versions", "log"):
            primary.sql(
                "USE shop",
                f"CREATE TABLE {table} (id INT PRIMARY KEY, v DOUBLE, w TEXT)",
                f"INSERT INTO {table} SELECT seq, seq / 3, seq FROM seq_1_to_50",
            )
        mirror = mirrored(primary, "shop", rules=RULES, hashKeyFile=str(key))
        mirror.run()
        primary.sql(
            "USE shop",
            "UPDATE people SET country = 'FR' WHERE id = 1",
            "UPDATE people SET country = 'DE', email = NULL WHERE id = 2",
        )
        for table in ("soft", "versions", "log"):
            primary.sql("USE shop", f"UPDATE {table} SET v = 0.1 WHERE id < 9", f"DELETE FROM {table} WHERE id = 7")
        mirror.run()

        def audited(**more: object) -> list[Any]:
            server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
            code = AUDIT.format(control=f"{mirror.lake}.mirror_control", more=server | more)
            result: list[Any] = mirror.workbench.run(code)
            return result

        rows = {"soft": 49, "versions": 49}
        rows["people"] = int(primary.value("SELECT COUNT(*) FROM shop.people WHERE country = 'DE' AND at < '20:00:00'"))
        equal, left, _ = audited(hashKeyFile=str(key))
        assert equal == {f"shop.{table}": [count, {}, None] for table, count in rows.items()}
        assert left == {"shop.log": "its target has the mode append_log: it holds changes, not rows"}
        for table, statement in FAULTS.items():
            mirror.workbench.run(f"spark.sql({statement.format(target=f'{mirror.lake}.{table}')!r})")
        found, left, shown = audited(hashKeyFile=str(other), repair=True)
        assert "hashKeyFile has another key than the target" in left["shop.people"]
        assert {table: counts for table, (_, counts, _) in found.items()} == {
            "shop.soft": {"different": 1},
            "shop.versions": {"missing": 1},
        }
        assert all("are not repaired: use mirror_resnapshot" in told for _, _, told in found.values())
        found, _, shown = audited(hashKeyFile=str(key))
        assert found["shop.people"] == [rows["people"], {"different": 1}, None]
        assert "number='3'" in shown
        assert "MARKER" not in shown
        primary.sql("USE shop", "ALTER TABLE soft DROP COLUMN w", "ALTER TABLE versions ADD COLUMN late INT")
        _, left, _ = audited(hashKeyFile=str(key))
        for table in ("soft", "versions"):
            assert f"shop.{table} was altered after" in left[f"shop.{table}"]
            assert "Audit it again when the mirror has applied the change." in left[f"shop.{table}"]


WAIT = """
import time
def wait(verdict):
    read = "SELECT max_by(audit, audited_at) FROM {control}_audits"
    end = time.monotonic() + 600
    while True:
        found = spark.sql(read).first()[0] if spark.catalog.tableExists("{control}_audits") else None
        if found == verdict:
            return
        assert query.isActive, query.exception()
        assert time.monotonic() < end, found
        time.sleep(0.5)
def metric(name):
    system = spark._jvm.org.apache.spark.SparkEnv.get().metricsSystem()
    sources = system.getSourcesByName("AccumulatorSource")
    of = [sources.apply(at).metricRegistry().getGauges().get("{prefix}." + name) for at in range(sources.size())]
    (gauge,) = [one for one in of if one is not None]
    return gauge.getValue()
def wait_metric(name, value):
    end = time.monotonic() + 600
    while metric(name) != value:
        assert query.isActive, query.exception()
        assert time.monotonic() < end, metric(name)
        time.sleep(0.5)
"""


def test_a_mirror_audits_itself_and_goes_on_whatever_it_finds(mirrored: Callable[..., Mirrored]) -> None:
    with MariaDb("10.11") as primary:
        primary.add_user()
        primary.sql("CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY, v INT)")
        primary.sql("USE shop", "INSERT INTO a SELECT seq, seq FROM seq_1_to_20")
        mirror = mirrored(primary, "shop")
        mirror.run()
        bench = mirror.workbench
        arguments = mirror.arguments | {"trigger": None, "auditEvery": "3s"}
        bench.run(f"from streaming_source import mirror\nquery = mirror(spark, **{arguments!r})")
        try:
            control = f"{mirror.lake}.mirror_control"
            bench.run(WAIT.format(control=control, prefix=metric_prefix(control)))
            bench.run("wait('equal')\nwait_metric('audit_tables_equal', 1.0)")
            told = bench.run("result = {name: metric(name) for name in ('tables_current', 'audit_last_seconds')}")
            assert told["tables_current"] == 1
            assert told["audit_last_seconds"] > 1e9
            bench.run(f"spark.sql('DELETE FROM {mirror.lake}.a WHERE id = 5')")
            bench.run("wait('not equal')\nwait_metric('audit_tables_not_equal', 1.0)")
            primary.sql("DELETE FROM shop.a WHERE id = 5")
            bench.run("wait('equal')\nwait_metric('audit_tables_not_equal', 0.0)")
        finally:
            bench.run("query.stop()")
        mirror.assert_equal("a")
