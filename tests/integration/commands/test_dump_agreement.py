"""`dump` and `mariadb-binlog -vv` say the same of every file: event by event, row by row, value by value.

The files: every recorded vector, and on each server version one file with every type and its boundary values, at each
metadata level. Where the tool is known to be wrong or vague, tests/integration/rows/vendor_rows.py says how.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import pytest

from replica.commands.dump.outputs.count import Summary
from replica.commands.dump.outputs.json_lines import write_events
from replica.protocol.constants import EventType
from tests.integration.commands.dump_agreement import check_rows, our_rows, reading
from tests.integration.rows.type_cases import CASES
from tests.integration.rows.vendor_rows import vendor_rows
from tests.unit.commands.dump import files as recorded
from tests.vectors.load import BINLOGS, listing, name_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.mariadb import MariaDb

pytestmark = pytest.mark.server
MARIADB = [path for path in BINLOGS if not path.parent.name.startswith("mysql")]
UNCOMPRESSED = {
    EventType.WRITE_ROWS_COMPRESSED_V1: EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_COMPRESSED_V1: EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_COMPRESSED_V1: EventType.DELETE_ROWS_V1,
}


@pytest.mark.parametrize("path", MARIADB, ids=name_of)
def test_rows_of_recorded_files(any_server: MariaDb, path: Path) -> None:
    check_rows(list(our_rows(path)), vendor_rows(any_server, path))


@pytest.mark.parametrize("path", MARIADB, ids=name_of)
def test_events_of_recorded_files(path: Path) -> None:
    """The listing beside each file is mariadb-binlog's own, made with the file."""
    out = io.BytesIO()
    write_events(reading(path), out)
    ours = [json.loads(line) for line in out.getvalue().splitlines()]
    theirs = listing(path)
    assert len(ours) == len(theirs)
    for event, said in zip(ours, theirs, strict=True):
        assert event["offset"] == said.offset
        for name in ("server_id", "log_pos", "flags", "timestamp"):
            assert event[name] == getattr(said, name), event
        if event["code"] in UNCOMPRESSED:  # the tool shows what comes out of them: another type, another length
            assert UNCOMPRESSED[event["code"]] == said.event_type
        else:
            assert (event["code"], event["end"] - event["offset"]) == (said.event_type, said.length)


@pytest.mark.parametrize("metadata", ["NO_LOG", "MINIMAL", "FULL"])
def test_every_type(server: MariaDb, metadata: str) -> None:
    version = tuple(map(int, server.value("SELECT VERSION()").split(".")[:2]))
    database = f"agree_{metadata.lower()}"
    with server.connect() as connection, connection.cursor() as cursor:
        run = cursor.execute
        run("SET time_zone = '+00:00', sql_mode = 'ALLOW_INVALID_DATES'")
        run(f"SET GLOBAL binlog_row_metadata = {metadata}")
        run("FLUSH BINARY LOGS")
        run(f"CREATE OR REPLACE DATABASE {database} CHARACTER SET utf8mb4")
        run(f"USE {database}")
        for number, case in enumerate(CASES):
            if case.since > version:
                continue
            run(
                f"CREATE TABLE t{number} (id INT PRIMARY KEY, n {case.declaration} NULL, m {case.declaration} NOT NULL)"
            )
            rows = [(value, value) for value in case.values] + [("NULL", case.values[0])]
            values = ", ".join(f"({i}, {n}, {m})" for i, (n, m) in enumerate(rows))
            run(f"INSERT INTO t{number} VALUES {values}")
            run(f"UPDATE t{number} SET id = id + 1 ORDER BY id DESC")
            run(f"DELETE FROM t{number} LIMIT 1")
        run("SET GLOBAL binlog_row_metadata = NO_LOG")
        run("FLUSH BINARY LOGS")
    path = server.datadir / server.binlogs()[-2]
    ours = list(our_rows(path))
    assert len(ours) > 500
    check_rows(ours, vendor_rows(server, path))


@pytest.mark.parametrize("metadata", ["NO_LOG", "FULL"])
def test_rows_whose_size_only_the_definition_tells_are_counted_or_said(server: MariaDb, metadata: str) -> None:
    server.sql(
        "CREATE OR REPLACE DATABASE old",
        f"SET GLOBAL binlog_row_metadata = {metadata}",
        "SET GLOBAL mysql56_temporal_format = OFF",
        "FLUSH BINARY LOGS",
    )
    first = len(server.binlogs()) - 1
    server.sql(
        "CREATE TABLE old.t (id INT, t TIME(3), d DATETIME(6), s TIMESTAMP(2) NULL, v VARCHAR(20))",
        "SET GLOBAL mysql56_temporal_format = ON",
        *(f"INSERT INTO old.t VALUES ({n}, '10:11:12.5', '2020-01-01', NULL, REPEAT('x', {n}))" for n in range(9)),
        "FLUSH BINARY LOGS",
        "CREATE TABLE old.fine (a INT)",
        "INSERT INTO old.fine VALUES (1)",
        "INSERT INTO old.t VALUES (1, '1:1:1', NULL, NULL, 'a'), (2, NULL, NULL, NULL, 'abc')",
        "SET GLOBAL binlog_row_metadata = NO_LOG",
    )
    files = [server.datadir / name for name in server.binlogs()[first:]]

    def counted(*names: Path) -> tuple[dict[str, int], int, str]:
        read, summary = recorded.reading(names), Summary()
        for part in read.parts():
            summary.add(part, read)
        counts = {name.table: int(numbers.sum()) for name, numbers in summary.rows.items()}
        return counts, read.notices.exit_code, recorded.said(read)

    assert counted(*files) == ({"t": 11, "fine": 1}, 0, "")
    without, code, notice = counted(files[-1])  # its CREATE TABLE is in another file
    assert (without, code) == ({"fine": 1}, 60)
    assert "rows of old.t are not counted: Column " in notice
