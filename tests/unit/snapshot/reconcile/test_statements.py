"""Statements behind a place that take selected tables from what they were there; what was made since does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from replica.protocol.constants import GtidFlag
from replica.protocol.gtid import Gtid
from replica.relay_log.location import RelayLocation
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from replica.rows.scan.scan import scan
from replica.snapshot.reconcile.statements import SHOWN, StatementsAfter, shown
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive


def behind(folder: Path, *texts: str) -> tuple[StatementsAfter, list[RelayLocation]]:
    """The statements of a log in which `d.t` and all of `d2` are selected, and the place behind each."""
    primary = Primary.dump()
    for number, text in enumerate(texts, 1):
        primary.gtid(Gtid(0, 1, number), GtidFlag.STANDALONE | GtidFlag.DDL)
        primary.query(text.encode())
    with RelayWriter.open(folder) as relay:
        receive(relay, primary.wire())
        head = relay.head.location
    log = RelayLog(folder)
    (part,) = log.ranges(RelayLocation(1, 0), head, 1 << 30)
    content = memoryview(Path(part.path).read_bytes())[part.start : part.end]
    ends = scan(content, checksum=part.checksum).groups["end"].tolist()
    places = [RelayLocation(1, part.start + end) for end in ends]
    found = StatementsAfter(
        log,
        log.oldest(),
        lambda database, table: (database, table) == ("d", "t") or database == "d2",
        lambda database: database in ("d", "d2"),
    )
    return found, places


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE d.t ADD x INT",
        "TRUNCATE TABLE d.t",
        "RENAME TABLE d.t TO d.u",
        "RENAME TABLE d.u TO d.t",
        "DROP TABLE d.a, d2.b",
        "DROP DATABASE d",
        "CREATE OR REPLACE TABLE d.t (a INT)",
        "CREATE TABLE IF NOT EXISTS d.t (a INT)",
        "CREATE INDEX i ON d.t (a)",
        "ALTER TABLE ((",
    ],
)
def test_what_may_have_changed_a_selected_table_is_found(tmp_path: Path, text: str) -> None:
    found, places = behind(tmp_path, "CREATE TABLE d.other (a INT)", text, "DROP TABLE d.t")
    assert found.first_up_to(places[0]) is None
    first = found.first_up_to(places[1])
    assert first is not None
    assert shown(first) == f"0-1-2, {text}"
    assert found.first_up_to(places[2]) == first


def test_a_table_that_was_made_behind_the_place_does_not_count(tmp_path: Path) -> None:
    found, places = behind(
        tmp_path,
        "CREATE TABLE d2.young (a INT)",
        "ALTER TABLE d2.young ADD b INT",
        "CREATE OR REPLACE TABLE d2.young (a INT)",
        "DROP TABLE d2.young",
        "ALTER TABLE d.u ADD b INT",
        "ALTER TABLE d2.old ADD b INT",
    )
    assert found.first_up_to(places[4]) is None
    assert list(found.created) == [("d2", "young")]
    first = found.first_up_to(places[5])
    assert first is not None
    assert first.text.gtid.seq_no == 6


def test_a_long_statement_is_shown_in_part_and_without_what_may_be_secret(tmp_path: Path) -> None:
    found, places = behind(tmp_path, f"ALTER TABLE d.t\n COMMENT='{'x' * 200}'")
    first = found.first_up_to(places[0])
    assert first is not None
    assert shown(first).startswith("0-1-1, ALTER TABLE d.t COMMENT='xxx")
    assert len(shown(first)) == SHOWN + len("0-1-1, …")
    found, places = behind(tmp_path / "other", "ALTER TABLE d.t CONNECTION='mysql://root:secret@h/d'")
    first = found.first_up_to(places[0])
    assert first is not None
    assert shown(first) == "0-1-1, ALTER TABLE d.t …"
