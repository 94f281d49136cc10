"""Audits of Iceberg targets: equal at the mirror's position, and exactly the rows that PyIceberg changes are found."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.expressions import And, EqualTo

from streaming_source.auditing.call import audit
from streaming_source.mirroring.control.metrics import metric_prefix
from tests.mirroring.mirrors import PEOPLE
from tests.mirroring.operations.test_audit import RULES, WAIT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

    from tests.fixtures.mariadb import MariaDb
    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.slow, pytest.mark.timeout(1800)]

COMPARED: Final = ("now", "soft", "versions", "people")
LOG: Final = {"shop.log": "its target has the mode append_log: it holds changes, not rows"}
AUDIT = (
    "import json\n"
    f"from {audit.__module__} import {audit.__name__}"
    """
from replica.errors import ReplicaError
try:
    result = {{"text": str(found := audit(spark, **{arguments!r})), **json.loads(found.json())}}
except ReplicaError as error:
    result = {{"error": [type(error).__name__, str(error)]}}
"""
)
CALLS = """
from replica.errors import ReplicaError
from streaming_source import mirror_status, mirror_tables
rows = mirror_status(spark, into={into!r}).select("source_table", "audit").collect()
try:
    at = {{name: rows.count() for name, rows in mirror_tables(spark, into={into!r}).items()}}
except ReplicaError as error:
    at = [type(error).__name__, str(error)]
result = [{{row[0]: row[1] for row in rows}}, at]
"""
PROGRAM = """
import contextlib, io
from streaming_source.auditing.program import main
out = io.StringIO()
with contextlib.redirect_stdout(out):
    try:
        main({arguments!r})
    except SystemExit as end:
        result = [end.code, out.getvalue()]
"""


@pytest.fixture
def catalog(tmp_path: Path) -> dict[str, str]:
    """The properties of a catalog of the test alone."""
    uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/warehouse"
    return {"name": f"of {tmp_path.name}", "type": "sql", "uri": uri, "warehouse": warehouse}


def table_of(mirror: Mirrored, name: str) -> Table:
    catalog = mirror.arguments["icebergCatalog"]
    properties = {key: value for key, value in catalog.items() if key != "name"}
    return load_catalog(catalog["name"], **properties).load_table(f"{mirror.lake}.{name}")


def audited(mirror: Mirrored, /, **more: object) -> dict[str, Any]:
    """Return the result of an audit of the mirror, or its error."""
    server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
    given = {"mirror": f"{mirror.lake}.mirror_control", **server, **more}
    found: dict[str, Any] = mirror.workbench.run(
        AUDIT.format(arguments={name: value for name, value in given.items() if value is not None})
    )
    return found


def findings(result: dict[str, Any]) -> dict[str, list[tuple[str, dict[str, str], int]]]:
    """Return the kind, the key and the number of all differing rows of each compared table."""
    assert "error" not in result, result
    return {
        each["table"]: [(one["kind"], one["key"], one["rows"]) for one in each["differences"]]
        for each in result["tables"]
    }


def left_out(result: dict[str, Any]) -> dict[str, str]:
    return {each["table"]: each["reason"] for each in result["left_out"]}


def rows_with(table: Table, rows: BooleanExpression, **values: object) -> pa.Table:
    """Return rows of a table with other values."""
    found = table.scan(row_filter=rows).to_arrow()
    for name, value in values.items():
        place = found.schema.get_field_index(name)
        column = pa.array([value] * found.num_rows, found.schema.field(name).type)
        found = found.set_column(place, found.schema.field(name), column)
    return found


def change(table: Table, rows: BooleanExpression, **values: object) -> None:
    """Change rows without the mirror."""
    table.overwrite(rows_with(table, rows, **values), overwrite_filter=rows)


def shop(primary: MariaDb) -> None:
    primary.sql(
        "DROP DATABASE IF EXISTS shop",
        "CREATE DATABASE shop CHARACTER SET utf8mb4",
        "USE shop",
        *PEOPLE,
    )
    for table in ("now", "soft", "versions", "log"):
        primary.sql(
            "USE shop",
            f"CREATE TABLE {table} (id INT PRIMARY KEY, v DOUBLE, w TEXT, small TINYINT, at TIMESTAMP(6) NULL, t TIME)",
            f"INSERT INTO {table} SELECT seq, seq / 3, seq, seq, FROM_UNIXTIME(seq + 0.5), SEC_TO_TIME(seq) "
            "FROM seq_1_to_50",
        )


def write(primary: MariaDb, value: float) -> None:
    """Change, delete and insert rows in each table."""
    for table in ("now", "soft", "versions", "log"):
        primary.sql(
            "USE shop",
            f"UPDATE {table} SET v = {value} WHERE id < 9",
            f"DELETE FROM {table} WHERE id = {int(value)}",
            f"INSERT INTO {table} (id, v) VALUES ({int(value) + 100}, -0.0)",
        )
    primary.sql(
        "USE shop",
        f"UPDATE people SET price = {value}, email = NULL WHERE id = 2",
        f"UPDATE people SET country = IF(country = 'FR', 'DE', 'FR') WHERE id IN (2, {int(value)})",
    )


def test_exactly_the_rows_that_something_else_changed_are_found(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32, encoding="utf-8")
    key.chmod(0o600)
    shop(primary)
    mirror = mirrored(primary, "shop", rules=RULES, hashKeyFile=str(key), format="iceberg", icebergCatalog=catalog)
    mirror.run()
    equal = {f"shop.{table}": [] for table in COMPARED}
    for value in (20.5, 21.5):
        found = audited(mirror, hashKeyFile=str(key))
        assert (findings(found), left_out(found)) == (equal, LOG)
        # The targets have the next batch, but the control table does not: the audit reads the snapshot before it.
        write(primary, value)
        mirror.break_off()
        before = audited(mirror, hashKeyFile=str(key))
        assert (findings(before), left_out(before)) == (equal, LOG)
        assert before["position"] == found["position"] != primary.gtid_binlog_pos()
        mirror.run()
    people = "country = 'DE' AND at < '20:00:00'"
    counts = {each["table"]: each["source_rows"] for each in audited(mirror, hashKeyFile=str(key))["tables"]}
    assert counts["shop.people"] == int(primary.value(f"SELECT COUNT(*) FROM shop.people WHERE {people}"))
    assert counts["shop.versions"] == 50
    now, soft, versions = (table_of(mirror, name) for name in ("now", "soft", "versions"))
    change(now, EqualTo("id", 5), w="of another writer")
    now.delete(EqualTo("id", 6))
    now.append(rows_with(now, EqualTo("id", 7), id=1000))
    now.append(rows_with(now, EqualTo("id", 7)))
    change(soft, EqualTo("id", 30), _deleted=True)
    change(soft, EqualTo("id", 31), at=None)
    change(soft, EqualTo("id", 20), v=0.5)  # a deleted row, which no audit compares
    versions.delete(And(EqualTo("id", 40), EqualTo("_current", True)))
    change(table_of(mirror, "people"), EqualTo("number", 3), **{"email hash": "0" * 64})
    wrong = {
        "shop.now": [
            ("missing", {"id": "6"}, 1),
            ("extra", {"id": "1000"}, 1),
            ("different", {"id": "5"}, 1),
            ("doubled", {"id": "7"}, 1),
        ],
        "shop.soft": [("missing", {"id": "30"}, 1), ("different", {"id": "31"}, 1)],
        "shop.versions": [("missing", {"id": "40"}, 1)],
        "shop.people": [("different", {"number": "3"}, 1)],
    }
    found = audited(mirror, hashKeyFile=str(key))
    assert findings(found) == wrong
    assert "MARKER" not in found["text"]
    assert found["tables"][0]["version"] == now.refresh().current_snapshot().snapshot_id
    write(primary, 22.5)
    mirror.break_off()  # the batch comes after the rows of the other writer, which belong to the position
    assert findings(audited(mirror, hashKeyFile=str(key), record=False)) == wrong
    mirror.run()
    kind, text = audited(mirror, repair=True)["error"]
    assert (kind, text.partition(".")[0]) == ("ConfigError", "an audit cannot repair Iceberg targets")
    assert "mirror_resnapshot" in text
    assert "no key is given" in left_out(audited(mirror))["shop.people"]
    verdicts, counted = mirror.workbench.run(CALLS.format(into=mirror.arguments["into"]))
    assert verdicts == {"now": "not equal", "soft": "not equal", "versions": "not equal"} | dict.fromkeys(
        ("people", "log"), "left out"
    )
    assert counted["shop.now"] == 52  # those of the server, the extra one, and the doubled one
    mirror.resnapshot("now", "soft", "versions", "people")
    mirror.run()
    found = audited(mirror, hashKeyFile=str(key))
    assert (findings(found), left_out(found)) == (equal, LOG)


def test_a_copy_and_a_mirror_are_named_by_their_catalog(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    primary.sql("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)")
    primary.sql("USE shop", "INSERT INTO a SELECT seq FROM seq_1_to_9")
    mirror = mirrored(primary, "shop", format="iceberg", icebergCatalog=catalog)
    mirror.run()
    table = table_of(mirror, "a")
    first = table.current_snapshot()
    assert first is not None
    table.append(pa.table({"id": pa.array([10], pa.int32())}))
    control = f"{mirror.lake}.mirror_control"
    copies = {name: {"shop.a": f"{mirror.lake}.{name}"} for name in (f"a@v{first.snapshot_id}", "a")}
    for copy, more in zip(copies.values(), ([], [("extra", {"id": "10"}, 1)]), strict=True):
        assert findings(audited(mirror, mirror=None, tables=copy, icebergCatalog=catalog)) == {"shop.a": more}
    assert findings(audited(mirror, icebergCatalog=catalog)) == {"shop.a": [("extra", {"id": "10"}, 1)]}
    for given, reason in (({**catalog, "name": "a.b"}, "cannot be the name"), (["hidden-word"], "is not a name")):
        name, text = audited(mirror, icebergCatalog=given)["error"]
        assert name == "ConfigError"
        assert reason in text
        assert "hidden-word" not in text
    assert "there is no control table" in audited(mirror, mirror="lake.none", icebergCatalog=catalog)["error"][1]
    file = tmp_path / "audit.toml"
    server = "".join(f'{name} = "{mirror.arguments[name]}"\n' for name in ("host", "user", "password"))
    of_catalog = "".join(f'{name} = "{value}"\n' for name, value in catalog.items())
    file.write_text(
        f'mirror = "{control}"\nport = {mirror.arguments["port"]}\n{server}\n[icebergCatalog]\n{of_catalog}',
        encoding="utf-8",
    )
    for more in ([], ["--iceberg-catalog", catalog["name"]]):
        code, text = mirror.workbench.run(PROGRAM.format(arguments=[str(file), "--json", *more]))
        assert (code, findings(json.loads(text))) == (1, {"shop.a": [("extra", {"id": "10"}, 1)]})


def test_compactions_and_expired_snapshots_leave_audits_equal(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored]
) -> None:
    shop(primary)
    mirror = mirrored(primary, "shop", rules=RULES | {"shop.people": {}}, format="iceberg", icebergCatalog=catalog)
    mirror.run()
    equal = {f"shop.{table}": [] for table in COMPARED}
    for value in (20.5, 21.5):
        for name in (*COMPARED, "log"):
            table = table_of(mirror, name)
            table.overwrite(table.scan().to_arrow())  # one file for all rows, as a compaction writes it
            old = [one.snapshot_id for one in table.snapshots() if one != table.current_snapshot()]
            table.maintenance.expire_snapshots().by_ids(old).commit()
        # No snapshot of the mirror is left. The mirror has committed nothing since, so the current one is right.
        found = audited(mirror)
        assert (findings(found), left_out(found)) == (equal, LOG)
        write(primary, value)
        mirror.run()
        found = audited(mirror)
        assert (findings(found), left_out(found)) == (equal, LOG)
    write(primary, 22.5)
    mirror.break_off()
    table = table_of(mirror, "now")
    old = [one.snapshot_id for one in table.snapshots() if one != table.current_snapshot()]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    found = audited(mirror)
    assert findings(found) == {name: [] for name in equal if name != "shop.now"}
    assert "does not keep its rows of the micro-batch" in left_out(found)["shop.now"]
    _, (kind, text) = mirror.workbench.run(CALLS.format(into=mirror.arguments["into"]))
    assert kind == "DataLossError"
    assert "does not keep its rows of the micro-batch" in text
    mirror.run()
    found = audited(mirror)
    assert (findings(found), left_out(found)) == (equal, LOG)


def test_a_missing_file_and_a_missing_target_are_reasons(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored], tmp_path: Path
) -> None:
    primary.sql("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop")
    for table in ("a", "b", "c"):
        primary.sql("USE shop", f"CREATE TABLE {table} (id INT PRIMARY KEY)", f"INSERT INTO {table} VALUES (1)")
    mirror = mirrored(primary, "shop", format="iceberg", icebergCatalog=catalog)
    mirror.run()
    (file,) = (tmp_path / "warehouse").glob(f"**/{mirror.lake}*/a/data/*.parquet")
    file.unlink()
    properties = {key: value for key, value in catalog.items() if key != "name"}
    load_catalog(catalog["name"], **properties).drop_table(f"{mirror.lake}.b")
    found = audited(mirror)
    assert findings(found) == {"shop.c": []}
    reasons = left_out(found)
    assert "DataLossError: a data file of the Iceberg table" in reasons["shop.a"]
    assert "cannot be used: Table does not exist" in reasons["shop.b"]


def test_a_mirror_audits_its_iceberg_targets_itself(
    primary: MariaDb, catalog: dict[str, str], mirrored: Callable[..., Mirrored]
) -> None:
    primary.sql("DROP DATABASE IF EXISTS shop", "CREATE DATABASE shop", "CREATE TABLE shop.a (id INT PRIMARY KEY)")
    primary.sql("USE shop", "INSERT INTO a SELECT seq FROM seq_1_to_20")
    mirror = mirrored(primary, "shop", format="iceberg", icebergCatalog=catalog)
    mirror.run()
    bench = mirror.workbench
    control = f"`iceberg:{catalog['name']}`.`{mirror.lake}`.`mirror_control`"
    bench.run(f"from streaming_source import mirror\nquery = mirror(spark, **{mirror.arguments | ALWAYS!r})")
    try:
        bench.run(WAIT.format(control=control, prefix=metric_prefix(control)) + LAST.format(control=control))
        bench.run("wait('equal')\nwait_metric('audit_tables_equal', 1.0)")
        table_of(mirror, "a").delete(EqualTo("id", 5))
        bench.run("wait('not equal')\nwait_metric('audit_tables_not_equal', 1.0)")
        primary.sql("DELETE FROM shop.a WHERE id = 5")
        bench.run("wait('equal')\nwait_metric('audit_tables_not_equal', 0.0)")
    finally:
        bench.run("query.stop()")


ALWAYS: Final = {"trigger": None, "auditEvery": "3s"}
LAST = """
from streaming_source.auditing.mirror.records import last_audits
def wait(verdict):
    end = time.monotonic() + 600
    while True:
        audits = last_audits(spark, {control!r})
        found = None if audits is None else audits.first()
        if found is not None and found["audit"] == verdict:
            return
        assert query.isActive, query.exception()
        assert time.monotonic() < end, found
        time.sleep(0.5)
"""
