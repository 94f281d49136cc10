"""A recorded relay log through both outputs: the rows that `dump` shows, and everything else in words."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest

from replica.commands.dump.outputs.json_lines import write_json_rows
from replica.commands.tail.lines import Colours, Transactions
from replica.commands.tail.source import OPERATIONS, Changes
from replica.commands.tail.tailing import JsonLines, PrettyLines, Tail
from replica.errors import DataLossError
from replica.protocol.gtid import GtidPosition
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.rows.names import DefinedBefore
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import PreparedBefore
from replica.readers.rows.without_rows import StatementChanges
from replica.relay_log.location import RelayLocation, index_path, relay_path
from tests.unit.commands.dump.files import reading as file_reading
from tests.unit.commands.dump.files import said, vector
from tests.unit.commands.tail.relay_logs import live_reading, recorded_log

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from replica.relay_log.log import RelayLog

BEGIN = RelayLocation(1, 0)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> RelayLog:
    return recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700)


def shown(
    log: RelayLog,
    patterns: Sequence[str] = (),
    *,
    as_json: bool = False,
    ops: Sequence[str] = (),
    count: int | None = None,
    start: RelayLocation = BEGIN,
    silent: bool = True,
    skip: GtidPosition | None = None,
    beside: io.StringIO | None = None,
    **selection: Any,
) -> str:
    out = io.BytesIO()
    ask = DefinedBefore(log, start).table
    reading, names = live_reading(log, patterns, ask=ask, start=skip or GtidPosition(), **selection)
    notices = Notices(beside or io.StringIO())
    lines = Transactions(names, Colours(on=False), silent)
    output: Any = JsonLines(names, out, notices) if as_json else PrettyLines(lines, out)
    wanted = frozenset(OPERATIONS[op] for op in ops) if ops else None
    tail = Tail(
        reading,
        Changes(reading, output.texts, wanted),
        output,
        PreparedBefore(log, start),
        count,
        StatementChanges(names.wants),
    )
    head = log.head()
    assert head is not None
    for part in RelayLogReader(log).parts(start, head.location):
        if not tail.show(part):
            break
    return out.getvalue().decode()


def rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_has_the_rows_of_dump(log: RelayLog) -> None:
    out = io.BytesIO()
    write_json_rows(file_reading([vector("11.8/transactions")]), out)
    expected, found = rows(out.getvalue().decode()), rows(shown(log, as_json=True))
    for row in expected + found:
        del row["file"], row["position"]  # another file
    assert found == expected
    assert len(found) > 10


def test_a_page_of_it(log: RelayLog) -> None:
    text = shown(log)
    for lines in (
        ["0-1-1  thread 6", "  sql     CREATE DATABASE v"],
        ["0-1-4  thread 6", "  # INSERT INTO t VALUES (1, 'kept')", "  # INSERT INTO t VALUES (3, 'kept')"],
        ["  insert  v.t           a=1  b='kept'", "  insert  v.t           a=3  b='kept'"],
        ["0-1-12  thread 7  XA PREPARE X'7832',X'',1: its rows are shown when it is committed"],
        ["0-1-14  thread 6  XA COMMIT X'7831',X'6272616e6368',7", "  insert  v.t           a=11  b='xa'"],
        ["0-1-15  thread 7  XA ROLLBACK X'7832',X'',1: its rows were never committed"],
    ):
        assert "\n".join(lines) + "\n" in text
    gtids = [line.split()[2] for line in text.splitlines() if not line.startswith(" ")]
    assert gtids == list(dict.fromkeys(gtids))
    assert len(gtids) > 20


def test_xa_rows_that_were_prepared_before_the_start(log: RelayLog) -> None:
    start = log.locate(GtidPosition.parse("0-1-13"))
    assert start is not None
    found = rows(shown(log, as_json=True, start=start, count=1))
    assert [(row["gtid"], row["after"]["a"]) for row in found] == [("0-1-14", 11)]


def test_only_some_tables_operations_and_domains(log: RelayLog) -> None:
    assert {row["table"] for row in rows(shown(log, ["v.m"], as_json=True))} == {"m"}
    assert rows(shown(log, as_json=True, ops=["delete"])) == [
        row for row in rows(shown(log, as_json=True)) if row["op"] == "delete"
    ]
    assert {row["gtid"].split("-")[0] for row in rows(shown(log, as_json=True, domains=frozenset({7})))} == {"7"}
    assert "  sql  " not in shown(log, ["v.t"], silent=False)


def test_what_lies_up_to_a_position_is_stepped_over(log: RelayLog) -> None:
    found = rows(shown(log, as_json=True, skip=GtidPosition.parse("0-1-13,7-99-1000")))
    assert found[0]["gtid"] == "0-1-14"
    assert {row["gtid"].split("-")[0] for row in found} == {"0"}


@pytest.mark.parametrize("count", [1, 2, 5, 9])
def test_so_many_transactions(log: RelayLog, count: int) -> None:
    text = shown(log, count=count)
    assert sum(not line.startswith(" ") for line in text.splitlines()) == count
    assert shown(log).startswith(text)
    assert len({row["gtid"] for row in rows(shown(log, as_json=True, count=count))}) == count


def test_tables_of_every_type(tmp_path: Path) -> None:
    text = shown(recorded_log(tmp_path, "11.8", "metadata_full"))
    assert "NULL" in text
    assert "\x1b" not in text
    updates = [line for line in text.splitlines() if line.startswith("  update")]
    assert all("→" in line or "no shown column" in line for line in updates)


def test_images_that_hold_only_what_changed(tmp_path: Path) -> None:
    text = shown(recorded_log(tmp_path, "11.8", "minimal_image"))
    assert "→" in text


def test_a_prepare_that_was_purged_is_said(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "transactions", max_file_bytes=700)
    start = log.locate(GtidPosition.parse("0-1-13"))
    assert start is not None
    for number in range(1, start.file):
        relay_path(tmp_path, number).unlink()
        index_path(tmp_path, number).unlink()
    out = io.BytesIO()
    reading, names = live_reading(log, schema=None)
    output = JsonLines(names, out, Notices(io.StringIO()))
    tail = Tail(reading, Changes(reading, output.texts), output, PreparedBefore(log, start))
    head = log.head()
    assert head is not None
    assert all(tail.show(part) for part in RelayLogReader(log).parts(start, head.location))
    assert "commits the XA transaction" in said(reading)
    assert reading.notices.exit_code == DataLossError.exit_code
    assert "0-1-16" in out.getvalue().decode()


def test_changes_that_were_logged_as_statements_are_shown_and_counted(log: RelayLog) -> None:
    text = shown(log, ["v.m"], silent=False)
    assert "sql     INSERT INTO m VALUES (3)\n  1 statement without rows: changes of v.m\n" in text
    assert "INSERT INTO s" not in text, "not of the tables that are asked for"
    everything = shown(log)
    assert "2 statements without rows: changes of v.s, v.m" in everything
    assert "LOAD DATA INFILE" in everything
    assert "statements without rows" not in shown(log, ["v.t"], silent=False)


def test_json_says_beside_the_rows_what_has_none(log: RelayLog) -> None:
    beside = io.StringIO()
    assert rows(shown(log, ["v.m"], as_json=True, beside=beside))
    assert beside.getvalue() == (
        "mariadb-replica: 0-1-24 changed rows of v.m by a statement that was logged without them\n"
    )
