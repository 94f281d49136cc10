"""The parts of the mirror's soak, judged: its statements, the point a kill hit, what its judges must not let pass."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from tests.fixtures.mariadb import MariaDb
from tools.proofs.soak.mirror.driver import Audited, AuditOfAll
from tools.proofs.soak.mirror.family import FAMILY, FILLED, change_family
from tools.proofs.soak.mirror.faults import SHOWN, Planted, check_found, statement
from tools.proofs.soak.mirror.judge import compare
from tools.proofs.soak.mirror.load import FIXED, ROWS, SHOP, TABLES, change
from tools.proofs.soak.mirror.points import (
    ELSEWHERE,
    IN_A_BATCH,
    IN_A_MERGE,
    IN_A_WRITE,
    LakeFile,
    LakeFiles,
    Merging,
    point_hit,
)
from tools.proofs.soak.mirror.statements import FEW, MANY, OTHERS, Alterations, next_statements

if TYPE_CHECKING:
    from pathlib import Path


# -- statements ----------------------------------------------------------------------------------------------------


def test_alterations_keep_to_the_columns_that_there_are() -> None:
    altered = Alterations(random.Random(3))
    kinds = set()
    for _ in range(500):
        before = {column.name: column for column in altered.columns}
        kind, text = altered.next()
        kinds.add(kind)
        after = {column.name: column for column in altered.columns}
        words = text.replace(",", " ").split()
        named = {words[n + 1] for n, word in enumerate(words) if word == "COLUMN"} | {
            words[n + 1] for n, word in enumerate(words) if word == "MODIFY"
        }
        assert named <= before.keys() | after.keys(), text
        assert min(FEW, len(before) + 1) <= len(after) <= MANY, text
        if kind == "ALTER: widen":
            (name,) = named
            assert after[name].width == before[name].width + 1, text
    wanted = {"ADD", "DROP", "RENAME", "widen", "ADD and DROP", "another type", "index"}
    assert kinds == {f"ALTER: {kind}" for kind in wanted}


def test_each_table_with_statements_has_a_writer_and_no_faults() -> None:
    quiet = {*FAMILY, *(table.partition(".")[2] for table in FIXED)}
    assert {"altered", *OTHERS} == {name for name, table in TABLES.items() if table.writes} - quiet


@pytest.mark.server
@pytest.mark.quick_on("newest")
def test_foreign_keys_cascade_under_the_changes_of_their_tables(server_version: str) -> None:
    with MariaDb(server_version) as primary:
        primary.sql(f"CREATE DATABASE {SHOP}", f"USE {SHOP}")
        made = (f"CREATE TABLE {name} {columns}" for name, columns in FAMILY.items())
        primary.sql(f"USE {SHOP}", *made, *FILLED)
        chance = random.Random(7)
        with primary.connect(database=SHOP) as connection, connection.cursor() as cursor:
            for _ in range(300):
                change_family(cursor, chance)
        for name in FAMILY:
            assert primary.value(f"SELECT COUNT(*) FROM {SHOP}.{name}") > 10
        assert primary.value(f"SELECT COUNT(*) FROM {SHOP}.grandchildren WHERE child IS NULL AND id <= 600") > 0


@pytest.mark.server
@pytest.mark.quick_on("newest")
def test_a_server_takes_the_statements_and_the_changes_between_them(server_version: str) -> None:
    with MariaDb(server_version) as primary:
        primary.sql(f"CREATE DATABASE {SHOP}")
        session = {"database": SHOP, "init_command": "SET sql_mode = ''"}
        with primary.connect(**session) as connection, connection.cursor() as cursor:
            tables = {name: table for name, table in TABLES.items() if name not in FAMILY}
            for name, table in tables.items():
                cursor.execute(f"CREATE TABLE {name} {table.columns}")
            for name, table in tables.items():
                chance = random.Random(f"5 {name}")
                altered = Alterations(chance)
                for _ in range(30 if table.writes else 0):
                    if name in {"altered", *OTHERS}:
                        for text in next_statements(name, chance, altered)[1]:
                            cursor.execute(text)
                    for each in (name, *table.beside):
                        change(cursor, each, chance)
                    for column in altered.columns:
                        for value in column.values():
                            cursor.execute(f"UPDATE {name} SET {column.name} = {value} WHERE id < {ROWS}")
        assert len(primary.sql(f"SHOW COLUMNS FROM {SHOP}.altered")) > 3
        assert primary.value(f"SELECT COUNT(*) FROM {SHOP}.pairs") > 0


# -- points --------------------------------------------------------------------------------------------------------


def commit(target: Path, number: int, batch: int | None, *files: str) -> None:
    """Write a commit of a target, and the data files that it adds."""
    (target / "_delta_log").mkdir(parents=True, exist_ok=True)
    told = {} if batch is None else {"userMetadata": json.dumps({"mirror": "m", "batch": batch, "position": ""})}
    actions = [{"commitInfo": told}, *({"add": {"path": f"a%20b/{file}"}} for file in files)]
    (target / "_delta_log" / f"{number:020}.json").write_text("\n".join(map(json.dumps, actions)))
    for file in files:
        (target / "a b").mkdir(exist_ok=True)
        (target / "a b" / file).touch()


def offsets(checkpoint: Path, *values: dict[str, Any]) -> None:
    """Write the offsets 0, 1, … of a checkpoint."""
    folder = checkpoint / "offsets"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for number, value in enumerate(values):
        (folder / str(number)).write_text(f"v1\n{{}}\n{json.dumps(value)}")


def test_the_files_tell_what_a_kill_hit(tmp_path: Path) -> None:
    lake = LakeFiles(tmp_path)
    assert (lake.done(), lake.commits()) == (-1, frozenset())
    one, other, control = tmp_path / "shop" / "one", tmp_path / "shop" / "other", tmp_path / "mirror_control"
    merging, appending = Merging(tmp_path / "checkpoint", replaced=()), Merging(tmp_path / "none", replaced=())
    offsets(tmp_path / "checkpoint", {"v": 1}, {"v": 1})
    commit(control, 0, 4)
    commit(one, 0, 4)
    assert point_hit(lake, frozenset(), merging) == IN_A_BATCH  # both are made, and have no rows yet
    commit(one, 1, 4, "one.parquet")
    commit(other, 0, 4, "other.parquet")
    commit(control, 1, 4, "control.parquet")
    (control / "torn.parquet").touch()  # not of a target
    commit(other, 1, None)  # by someone else
    assert len(lake.commits()) == 4
    assert point_hit(lake, frozenset(), merging) == ELSEWHERE
    commit(one, 2, 5, "more.parquet")
    assert point_hit(lake, frozenset(), merging) == IN_A_BATCH
    (other / "torn.parquet").touch()
    assert point_hit(lake, frozenset(), appending) == IN_A_WRITE
    assert point_hit(lake, frozenset(), merging) == IN_A_MERGE
    assert point_hit(lake, lake.loose(), merging) == IN_A_BATCH
    commit(control, 2, 5, "all.parquet")
    assert point_hit(lake, lake.loose(), merging) == ELSEWHERE


def test_the_last_offsets_tell_what_the_batch_merges(tmp_path: Path) -> None:
    merging = Merging(tmp_path, replaced=[("shop", "swapped")])
    reading = {"v": 4, "snapshot": {"after": ["shop", "lines"], "open": [["shop", "half", ""]], "rows": 9}}
    delivered: dict[str, Any] = {"v": 1}

    def merged() -> str:
        names = ("half", "lines", "swapped", "toys")
        return " ".join(name for name in names if merging.any([LakeFile(("shop", name), "a.parquet")]))

    assert merged() == ""
    offsets(tmp_path, reading)
    assert merged() == ""  # what came before the first batch is not told
    offsets(tmp_path, delivered, reading, delivered)
    assert merged() == "lines"
    offsets(tmp_path, reading, delivered, reading)
    assert merged() == "half lines toys"
    offsets(tmp_path, delivered, delivered | {"asked": {"words": ["7"], "tables": [["shop", "toys"]]}})
    assert merged() == "half lines"
    assert merging.any([LakeFile(("shop", "toys"), "a.parquet"), LakeFile(("shop", "half"), "a.parquet")])
    assert not merging.any([])


# -- judges --------------------------------------------------------------------------------------------------------


def test_rows_are_compared_by_number_and_by_value() -> None:
    rows = [(1, "a", None), (2, "NULL", None), (2, "NULL", None)]
    assert compare(rows, lambda: list(rows)) == (3, {}, {})
    found = compare(rows, lambda: [(1, "a", "NULL"), rows[1], rows[1], rows[1]])
    assert found == (4, {("1", "a", "\0"): 1}, {("1", "a", "NULL"): 1, ("2", "NULL", "\0"): 1})


EQUAL = Audited(equal=True, rows=9, counts={}, differences=[])
PLANTED = Planted("shop.plain", "flipped", {"id": "7"})
FOUND = Audited(equal=False, rows=9, counts={"different": 1}, differences=[("different", {"id": "7"})])


@pytest.mark.parametrize(
    "tables",
    [
        {"shop.plain": EQUAL},
        {"shop.pairs": EQUAL},
        {"shop.pairs": FOUND},
        {"shop.plain": FOUND, "shop.pairs": FOUND},
        {"shop.plain": FOUND._replace(counts={"different": 2})},
        {"shop.plain": FOUND._replace(counts={"missing": 1})},
        {"shop.plain": FOUND._replace(differences=[("different", {"id": "8"})])},
    ],
    ids=["missed", "left out", "of another table", "another one too", "two rows", "another kind", "another row"],
)
def test_a_fault_has_to_be_named_and_nothing_else(tables: dict[str, Audited]) -> None:
    check_found([PLANTED], AuditOfAll("0-1-9", {"shop.plain": FOUND, "shop.pairs": EQUAL}, {}))
    with pytest.raises(AssertionError, match="planted"):
        check_found([PLANTED], AuditOfAll("0-1-9", tables, {}))
    with pytest.raises(AssertionError, match="planted"):
        check_found([], AuditOfAll("0-1-9", {"shop.plain": FOUND}, {}))


def test_each_fault_touches_the_row_of_its_key_alone() -> None:
    texts = {kind: statement(kind, "lake", {"a": 1, "b": 2}, "v", 8, 3) for kind in SHOWN}
    assert texts["flipped"] == "UPDATE lake SET v = v ^ 8 WHERE a = 1 AND b = 2"
    assert texts["missing"] == "DELETE FROM lake WHERE a = 1 AND b = 2"
    assert texts["doubled"] == "INSERT INTO lake SELECT * FROM lake WHERE a = 1 AND b = 2"
    assert "VERSION AS OF 3 WHERE a = 1 AND b = 2" in texts["stale"]
    assert "ON now.a = old.a AND now.b = old.b" in texts["stale"]
