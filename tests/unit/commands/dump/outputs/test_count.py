from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from replica.commands.dump.outputs.count import Summary
from replica.protocol.events.binlog_file import decode_file
from replica.protocol.gtid import GtidPosition
from replica.readers.rows.reading import ChosenTransactions
from tests.unit.commands.dump.files import reading, said, vector
from tests.unit.commands.dump.outputs.test_json_lines import rows
from tests.vectors.load import BINLOGS, name_of

MARIADB = [path for path in BINLOGS if not path.parent.name.startswith("mysql")]


def summary(*files: Any, **more: Any) -> Summary:
    read = reading(files, **more)
    found = Summary()
    for part in read.parts():
        found.add(part, read)
    assert said(read) == "", "counting needs no names"
    return found


@pytest.mark.parametrize("path", MARIADB, ids=name_of)
def test_counts_are_those_of_the_rows_and_events(path: Any) -> None:
    found = summary(path).as_json()
    changes = Counter((row["database"], row["table"], row["op"]) for row in rows(path))
    assert {
        (table["database"], table["table"], op): table[op]
        for table in found["tables"]
        for op in ("insert", "update", "delete")
        if table[op]
    } == changes
    events = [event for event, _ in decode_file(path.read_bytes())]
    assert {one["code"]: (one["events"], one["bytes"]) for one in found["events"]} == {
        code: (
            sum(event.header.event_type == code for event in events),
            sum(event.header.event_length for event in events if event.header.event_type == code),
        )
        for code in {event.header.event_type for event in events}
    }


def test_domains_times_and_what_is_left_out() -> None:
    found = summary(vector("11.8/transactions")).as_json()
    in_order = {"out_of_order": 0, "first_out_of_order": None}
    assert found["domains"] == [
        {"domain": 0, "transactions": 31, "first": "0-1-1", "last": "0-1-31"} | in_order,
        {"domain": 7, "transactions": 3, "first": "7-1-1", "last": "7-99-1000"} | in_order,
    ]
    assert (found["first_commit"], found["last_commit"]) == ("2023-11-14 22:13:20", "2023-11-14 22:13:22")
    assert found["skipped"] == {"transactions that were rolled back": 1}


def test_numbers_that_go_back_are_said() -> None:
    file = vector("11.8/transactions")
    twice = summary(file, file)
    first, second = twice.as_json()["domains"]
    assert (first["out_of_order"], first["first_out_of_order"]) == (1, "0-1-1"), "the file's second beginning"
    assert (second["out_of_order"], second["first_out_of_order"]) == (1, "7-1-1")
    assert "; 1 out of order, the first one 0-1-1\n" in twice.as_text()


def test_a_selection_counts_only_what_it_shows() -> None:
    selection = ChosenTransactions(start=GtidPosition.parse("0-1-13"), stop=GtidPosition.parse("0-1-16"))
    found = summary(vector("11.8/transactions"), selection=selection).as_json()
    assert found["transactions"] == 3
    assert found["tables"] == [{"database": "v", "table": "t", "insert": 2, "update": 0, "delete": 0}]
    assert found["skipped"]["transactions that were not asked for"] > 10


def test_patterns_count_only_their_tables() -> None:
    found = summary(vector("11.8/minimal_image"), patterns=["v.keyed"]).as_json()
    assert [table["table"] for table in found["tables"]] == ["keyed"]


def test_the_table_for_people_lines_up() -> None:
    text = summary(vector("11.8/transactions")).as_text()
    assert text.startswith("1 file, 34 transactions, committed 2023-11-14 22:13:20 to 2023-11-14 22:13:22 UTC\n")
    assert "row changes of  inserts  updates  deletes\nv.t" in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_changes_that_were_logged_as_statements_are_counted_by_table() -> None:
    found = summary(vector("11.8/transactions"))
    assert found.as_json()["statement_dml"] == {
        "statements": 8,
        "tables": [
            {"database": "v", "table": "s", "statements": 6},
            {"database": "v", "table": "c", "statements": 1},  # TRUNCATE
            {"database": "v", "table": "m", "statements": 1},
        ],
    }
    assert re.search(r"changes logged as statements, without rows, of +statements\nv\.s +6\n", found.as_text())
    chosen = summary(vector("11.8/transactions"), patterns=["v.m"]).as_json()["statement_dml"]
    assert chosen["tables"] == [{"database": "v", "table": "m", "statements": 1}]
    selection = ChosenTransactions(start=GtidPosition.parse("0-1-21"), stop=GtidPosition.parse("0-1-22"))
    assert summary(vector("11.8/transactions"), selection=selection).statements == 1
    assert summary(vector("11.8/minimal_image")).statements == 0
