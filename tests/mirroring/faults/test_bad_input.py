"""Bad input: one clear error with a remedy, nothing lost, and the other tables go on."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import pytest

from tests.mirroring.mirrors import fill_shop

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb
    from tests.mirroring.mirrors import Mirrored

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(1200)]

CURRENT = ("current", None)
UNKNOWN = "fromTheFuture"
"""A feature of tables that no writer knows."""
WITHOUT_DELTALAKE = """
import sys
from importlib.metadata import PackageNotFoundError
from streaming_source.mirroring.writers.native import writer as native

def version(name):
    raise PackageNotFoundError(name)

there = native.version
native.version = version
kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.partition(".")[0] == "deltalake"}
sys.modules["deltalake"] = None
result = True
"""
OTHER_DELTALAKE = "native.version = lambda name: '1.5.0'; result = True"
WITH_DELTALAKE = """
del sys.modules["deltalake"]
sys.modules.update(kept)
native.version = there
result = True
"""
REPAIR = """
from streaming_source import audit
found = audit(spark, mirror={control!r}, repair=True, **{server!r})
result = True
"""


def commits(folder: Path) -> list[Path]:
    """The commits in the log of a table, the oldest first."""
    return sorted(path for path in (folder / "_delta_log").glob("*.json") if path.stem.isdigit())


def cut(folder: Path) -> None:
    """Leave the beginning of the last commit."""
    last = commits(folder)[-1]
    last.write_bytes(last.read_bytes()[:100])


def add(folder: Path, *actions: dict[str, object]) -> None:
    """Add a commit with these actions; without any it is no JSON."""
    number = int(commits(folder)[-1].stem) + 1
    text = "\n".join(map(json.dumps, actions)) if actions else "this is no JSON"
    (folder / "_delta_log" / f"{number:020d}.json").write_text(f"{text}\n")


def need(folder: Path, *, reader: tuple[str, ...] = (), writer: tuple[str, ...] = (), version: int = 3) -> None:
    """Let a table need more features of its readers and writers."""
    actions = [json.loads(line) for path in commits(folder) for line in path.read_text().splitlines()]
    there = [action["protocol"] for action in actions if "protocol" in action][-1]
    features = {
        "readerFeatures": [*there["readerFeatures"], *reader],
        "writerFeatures": [*there["writerFeatures"], *reader, *writer],
    }
    add(folder, {"protocol": {"minReaderVersion": version, "minWriterVersion": max(version, 7), **features}})


def damage(folder: Path) -> None:
    """Spoil the ends of all data files."""
    for path in folder.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-30] + bytes(30))
        path.with_name(f".{path.name}.crc").unlink(missing_ok=True)


BREAKS: dict[str, tuple[Callable[[Path], object] | str, str]] = {
    "cut": (cut, "_delta_log"),
    "garbage": (add, "_delta_log"),
    "gap": (lambda folder: commits(folder)[-2].unlink(), "not contiguous"),
    "readers": (lambda folder: need(folder, reader=(UNKNOWN,)), UNKNOWN),
    "writers": (lambda folder: need(folder, writer=(UNKNOWN,)), UNKNOWN),
    "versions": (lambda folder: need(folder, version=9), "reader version 9"),
    "remade": ("CREATE OR REPLACE TABLE {t} (id INT, v INT) USING delta", "does not belong to this mirror any more"),
    "emptied": ("CREATE OR REPLACE TABLE {t} USING delta AS SELECT 1000 id, 1 v", "does not belong to this mirror"),
    "disowned": ("ALTER TABLE {t} UNSET TBLPROPERTIES ('mariadb.mirror')", "does not belong to this mirror any more"),
    "stolen": ("ALTER TABLE {t} SET TBLPROPERTIES ('mariadb.mirror' = 'other')", "it has other as its property"),
    "renamed": ("ALTER TABLE {t} RENAME COLUMN v TO w", "has no column v any more"),
    "no_log": (lambda folder: shutil.rmtree(folder / "_delta_log"), "does not exist any more"),
}
"""What somebody does to a target that no writer can go on after, and a part of the reason."""


def break_target(mirror: Mirrored, table: str, change: Callable[[Path], object] | str) -> None:
    if isinstance(change, str):
        mirror.workbench.run(f"spark.sql({change.format(t=f'{mirror.lake}.{table}')!r}); result = True")
    else:
        change(lake(mirror) / table)


def lake(mirror: Mirrored) -> Path:
    """The folder of a mirror's targets."""
    return mirror.workbench.folder / "warehouse" / f"{mirror.lake}.db"


def drop(mirror: Mirrored, *tables: str) -> None:
    for table in tables:
        mirror.workbench.run(f"spark.sql('DROP TABLE IF EXISTS {mirror.lake}.{table}'); result = True")


@pytest.mark.slow
def test_a_broken_target_is_suspended_and_comes_back_when_it_is_dropped(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    fill_shop(primary, *BREAKS, "beside", database="broken")
    mirror = mirrored(primary, "broken")
    mirror.run()
    primary.sql("USE broken", *(f"UPDATE {table} SET v = 0 WHERE id = 1" for table in BREAKS))
    mirror.run()
    for table, (change, _) in BREAKS.items():
        break_target(mirror, table, change)
    primary.sql("USE broken", "TRUNCATE emptied")
    primary.sql("USE broken", *(f"UPDATE {table} SET v = -1 WHERE id = 2" for table in (*BREAKS, "beside")))
    mirror.run()
    assert mirror.target("emptied") == [["1000", "1"]], "it is somebody's table"
    primary.sql("USE broken", *(f"DELETE FROM {table} WHERE id = 3" for table in (*BREAKS, "beside")))
    mirror.run()  # what is tried again by itself is tried again here
    states = mirror.states()
    assert states.pop("beside") == CURRENT
    mirror.assert_equal("beside")
    assert {table: state for table, (state, _) in states.items()} == dict.fromkeys(BREAKS, "failed")
    for table, (_, reason) in BREAKS.items():
        assert reason in str(states[table][1]), (table, states[table][1])
        assert f'mirror_resnapshot(spark, tables=["broken.{table}"]' in str(states[table][1]), table

    drop(mirror, *BREAKS)
    mirror.resnapshot(*BREAKS)
    mirror.run()
    mirror.assert_equal(*BREAKS, "beside")
    assert mirror.states() == dict.fromkeys((*BREAKS, "beside"), CURRENT)


def test_a_target_whose_files_are_gone_or_damaged_is_made_again_by_itself(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    fill_shop(primary, "gone", "damaged", "beside", database="files")
    mirror = mirrored(primary, "files")
    mirror.run()
    for path in (lake(mirror) / "gone").glob("*.parquet"):
        path.unlink()
    damage(lake(mirror) / "damaged")
    change = "UPDATE {} SET v = -1 WHERE id = 2"
    primary.sql("USE files", *(change.format(table) for table in ("gone", "damaged", "beside")))
    mirror.run()
    mirror.assert_equal("beside")
    states = mirror.states()
    assert {states["gone"][0], states["damaged"][0]} == {"failed"}
    assert "FAILED_READ_FILE" in str(states["gone"][1])
    mirror.run()
    mirror.assert_equal("gone", "damaged", "beside")
    assert mirror.states() == dict.fromkeys(("gone", "damaged", "beside"), CURRENT)


@pytest.mark.parametrize("writer", ["native", pytest.param("spark", marks=pytest.mark.slow)])
def test_an_unreadable_target_without_changes_ends_nothing(
    primary: MariaDb, mirrored: Callable[..., Mirrored], writer: str
) -> None:
    """Of targets that nothing is written to, the mirror looks whether they are there; foreign keys look into them."""
    database = f"idle_{writer}"
    primary.sql(
        f"CREATE DATABASE {database}",
        f"USE {database}",
        "CREATE TABLE parents (id INT PRIMARY KEY, v INT)",
        "CREATE TABLE children (id INT PRIMARY KEY, p INT REFERENCES parents (id) ON DELETE CASCADE)",
        "CREATE TABLE idle (id INT PRIMARY KEY, v INT)",
        *(f"INSERT INTO {table} SELECT seq, seq FROM seq_1_to_20" for table in ("parents", "children", "idle")),
    )
    mirror = mirrored(primary, database, writer=writer)
    mirror.run()
    add(lake(mirror) / "children")
    need(lake(mirror) / "idle", reader=(UNKNOWN,))
    primary.sql(f"DELETE FROM {database}.parents WHERE id = 3")
    mirror.run()
    mirror.run()
    mirror.assert_equal("parents")
    states = mirror.states()
    assert states["parents"] == CURRENT
    state, error = states["children"]
    assert state == "failed"
    assert "cannot be created" in str(error)
    assert "drop it or move it away" in str(error)
    drop(mirror, "children")
    mirror.resnapshot("children")
    mirror.run()
    mirror.assert_equal("parents", "children")
    assert mirror.states()["children"] == CURRENT


def test_one_table_ends_the_query_of_those_who_ask_for_that(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    fill_shop(primary, "broken", "beside", database="asked")
    mirror = mirrored(primary, "asked", onTableError="fail")
    mirror.run()
    break_target(mirror, "broken", BREAKS["renamed"][0])
    primary.sql("USE asked", *(f"UPDATE {table} SET v = -1 WHERE id = 2" for table in ("broken", "beside")))
    for _ in range(2):
        with pytest.raises(AssertionError, match=r"onTableError=fail ends the query: .* has no column v"):
            mirror.run()
        assert mirror.states() == dict.fromkeys(("broken", "beside"), CURRENT), "the control table has no batch of it"
    mirror.run(onTableError="suspend")
    mirror.assert_equal("beside")
    mirror.resnapshot("broken")
    mirror.run()
    mirror.assert_equal("broken", "beside")
    assert mirror.states() == dict.fromkeys(("broken", "beside"), CURRENT)


@pytest.mark.slow
def test_a_repair_that_the_target_refuses_ends_nothing(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    fill_shop(primary, "t", "beside", database="repaired")
    mirror = mirrored(primary, "repaired")
    mirror.run()
    mirror.workbench.run(
        f"spark.sql('UPDATE {mirror.lake}.t SET v = 6 WHERE id = 5'); "
        f"spark.sql('ALTER TABLE {mirror.lake}.t ADD CONSTRAINT other CHECK (v <> 5)'); result = True"
    )
    server = {name: mirror.arguments[name] for name in ("host", "port", "user", "password")}
    mirror.workbench.run(REPAIR.format(control=mirror.control.replace("`", ""), server=server))
    primary.sql("UPDATE repaired.beside SET v = -1 WHERE id = 2")
    mirror.run()
    mirror.assert_equal("beside")
    audits = f"spark.table('{mirror.control[:-1]}_audits`').where(\"audit = 'not repaired'\")"
    reasons = mirror.workbench.run(f"result = [row[0] for row in {audits}.select('reason').collect()]")
    assert len(reasons) == 1
    assert "CHECK constraint other" in reasons[0]
    assert "\tat " not in reasons[0], "no stack of Java"


def test_a_mirror_starts_with_the_deltalake_that_was_tried_or_with_spark_alone(
    primary: MariaDb, mirrored: Callable[..., Mirrored]
) -> None:
    fill_shop(primary, "a", "b", database="packages")
    mirror = mirrored(primary, "packages")
    mirror.run()
    mirror.workbench.run(WITHOUT_DELTALAKE)
    try:
        with pytest.raises(AssertionError, match=r"deltalake, which is not installed.*writer=spark"):
            mirror.run()
        primary.sql("UPDATE packages.a SET v = -1 WHERE id = 1")
        mirror.run(writer="spark")  # targets that deltalake wrote before
        primary.sql("DELETE FROM packages.b WHERE id = 2")
        mirror.run(writer="spark")
        mirror.workbench.run(OTHER_DELTALAKE)
        with pytest.raises(
            AssertionError, match=r"deltalake 1\.5\.0 is installed, a version that the mirror does not support"
        ):
            mirror.run()
    finally:
        mirror.workbench.run(WITH_DELTALAKE)
    mirror.assert_equal("a", "b")
    assert mirror.states() == dict.fromkeys("ab", CURRENT)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"tableProperties": {"delta.noSuchThing": "1"}}, r"the target \S+ cannot be created: .*noSuchThing"),
        ({"into": "nosuch://x/{table}"}, r'the control table \S+ cannot be used: .*scheme "nosuch"'),
        ({"checkpointLocation": "nosuch://x/c"}, r'the checkpoint nosuch://x/c cannot be used: .*scheme "nosuch"'),
        ({"checkpointLocation": "/proc/none/c"}, r"the checkpoint /proc/none/c cannot be used: .*/proc/none/c"),
        ({"control": "nowhere.x.control"}, r"the control table \S+ cannot be created: .*nowhere"),
    ],
)
def test_wrong_storage_and_properties_are_one_error_that_names_them(
    primary: MariaDb, mirrored: Callable[..., Mirrored], options: dict[str, object], error: str
) -> None:
    primary.sql("CREATE OR REPLACE DATABASE options", "CREATE TABLE options.a (id INT PRIMARY KEY)")
    mirror = mirrored(primary, "options", **options)
    with pytest.raises(AssertionError, match=rf"ConfigError: {error}"):
        mirror.run()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_one_of_a_thousand_tables_fails_in_each_batch(primary: MariaDb, mirrored: Callable[..., Mirrored]) -> None:
    names = [f"t{number}" for number in range(1000)]
    primary.sql("CREATE DATABASE many", "USE many")
    for name in names:
        primary.sql("USE many", f"CREATE TABLE {name} (id INT PRIMARY KEY, v INT)", f"INSERT INTO {name} VALUES (1, 1)")
    mirror = mirrored(primary, "many")
    mirror.run()
    broken = names[100:400:100]
    for number, name in enumerate(broken, 1):
        break_target(mirror, name, BREAKS["renamed"][0])
        primary.sql("USE many", *(f"INSERT INTO {one} VALUES ({number + 1}, {number})" for one in names))
        mirror.run()
        states = mirror.states()
        failed = {one for one, (state, _) in states.items() if state == "failed"}
        assert failed == set(broken[:number])
        assert "has no column v any more" in str(states[name][1])
        assert {states[one] for one in names if one not in failed} == {CURRENT}
    mirror.assert_equal(*(one for one in names if one not in broken))
    drop(mirror, *broken)
    mirror.resnapshot(*broken)
    mirror.run()
    mirror.assert_equal(*broken)
    assert set(mirror.states().values()) == {CURRENT}
