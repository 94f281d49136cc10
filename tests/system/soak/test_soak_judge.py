"""The judges of the Spark soak, judged: what they must not let pass, and the point that a kill hit."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tools.proofs.soak.spark.judge import IDENTITY, check_identities
from tools.proofs.soak.spark.oracle import Written
from tools.proofs.soak.spark.points import (
    AFTER_COMMIT,
    AFTER_OFFSETS,
    BEFORE_COMMIT,
    BEFORE_PLANNING,
    IN_A_TASK,
    QueryFolders,
    point_hit,
)
from tools.proofs.soak.spark.sinks import delivered

if TYPE_CHECKING:
    from pathlib import Path

HEADINGS = (
    b"""\
#261121 server id 1 end_log_pos 9 CRC32 0x0 \tGTID 0-1-7 trans
### INSERT INTO `soak`.`item`
### UPDATE `soak`.`item`
COMMIT/*!*/;
#261121 server id 1 end_log_pos 9 CRC32 0x0 \tGTID 5-1-1 trans
XA START X'78',X'',1
### INSERT INTO `soak`.`prepared`
XA END X'78',X'',1
XA PREPARE X'78',X'',1
ROLLBACK /* added by mysqlbinlog */;
""",
    b"""\
#261121 server id 1 end_log_pos 9 CRC32 0x0 \tGTID 5-1-2
XA COMMIT X'78',X'',1
#261121 server id 1 end_log_pos 9 CRC32 0x0 \tGTID 0-1-8 trans
### DELETE FROM `soak`.`item`
ROLLBACK /* added by mysqlbinlog */;
""",
)
"""Of two files. The last group has no end: a crash cut it off."""
ROWS = (
    (0, 1, 7, 0, False, "insert", "item"),
    (0, 1, 7, 1, True, "update", "item"),
    (5, 1, 2, 0, True, "insert", "prepared"),
)


def _table(*rows: tuple[object, ...]) -> pa.Table:
    names = (*IDENTITY, "is_last", "op", "table")
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


@pytest.fixture
def wanted() -> Written:
    found = Written()
    for headings in HEADINGS:
        found.read(headings.splitlines(keepends=True), may_be_torn=True)
    assert found.groups == 4
    return found


def test_a_rollback_that_no_crash_explains_is_not_judged() -> None:
    last_group = HEADINGS[1][HEADINGS[1].rindex(b"#261121") :]
    with pytest.raises(AssertionError, match=r"rows in the rolled back group \(0, 1, 8\)"):
        Written().read(last_group.splitlines(keepends=True), may_be_torn=False)


def test_each_row_once_is_right_in_any_order(wanted: Written) -> None:
    check_identities(_table(*reversed(ROWS)), wanted, "parquet")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((*ROWS, ROWS[1]), "1 row identities are there more than once"),
        (ROWS[1:], r"1 of 3 row changes are missing \[\(0, 1, 7, 0, 0\)\]"),
        ((*ROWS, (0, 1, 8, 0, True, "delete", "item")), "1 were never written"),
        ((ROWS[0], (0, 1, 7, 1, True, "delete", "item"), ROWS[2]), "1 of 3 row changes are missing"),
        ((ROWS[0], (0, 1, 7, 1, False, "update", "item"), ROWS[2]), "is_last of 1 rows is wrong"),
    ],
)
def test_what_is_wrong_is_found(wanted: Written, rows: tuple[tuple[object, ...], ...], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        check_identities(_table(*rows), wanted, "parquet")


@pytest.fixture
def query(tmp_path: Path) -> QueryFolders:
    found = QueryFolders("parquet", tmp_path / "checkpoint", tmp_path / "output")
    found.make()
    return found


def test_only_files_that_the_log_of_the_sink_names_count(query: QueryFolders) -> None:
    for number in range(4):
        pq.write_table(pa.table({"n": [number]}), query.output / f"part-{number}.parquet")

    def enter(name: str, *numbers: int) -> None:
        paths = [json.dumps({"path": f"file://{query.output}/part-{n}.parquet", "action": "add"}) for n in numbers]
        (query.sink_log / name).write_text("\n".join(["v1", *paths]))

    enter("0", 0)
    enter("1.compact", 0, 1)
    enter("2", 2)
    assert delivered(query, ["n"])["n"].to_pylist() == [0, 1, 2]
    enter("3", 2)
    with pytest.raises(AssertionError, match="names 1 files twice"):
        delivered(query, ["n"])


@pytest.mark.parametrize(
    ("files", "point"),
    [
        ((), BEFORE_PLANNING),
        (("checkpoint/offsets/1",), AFTER_OFFSETS),
        (("checkpoint/offsets/1", "output/part-1"), IN_A_TASK),
        (("checkpoint/offsets/1", "output/part-1", "output/_spark_metadata/1"), BEFORE_COMMIT),
        (("checkpoint/offsets/1", "output/_spark_metadata/1", "checkpoint/commits/1"), AFTER_COMMIT),
    ],
)
def test_the_point_that_was_hit_is_told_by_the_files(
    query: QueryFolders, tmp_path: Path, files: tuple[str, ...], point: str
) -> None:
    def make(name: str, second: int) -> None:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))

    for name in ("checkpoint/offsets/0", "output/part-0", "output/_spark_metadata/0", "checkpoint/commits/0"):
        make(name, 100)
    before = query.progress()
    for number, name in enumerate(files):
        make(name, 201 + number)
    assert point_hit(query, before, started_ns=200 * 10**9) == point


def test_a_batch_that_is_read_again_was_hit_in_a_task(query: QueryFolders) -> None:
    (query.checkpoint / "offsets" / "0").touch()
    before = query.progress()
    (query.output / "part-0").touch()
    assert point_hit(query, before, started_ns=0) == IN_A_TASK
