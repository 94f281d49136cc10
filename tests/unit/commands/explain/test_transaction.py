from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from replica.commands.explain.answer import Page
from replica.commands.explain.command import Acknowledged, explain_files, explain_relay
from replica.commands.tail.lines import Colours
from replica.protocol.gtid import BinlogPosition, Gtid
from replica.relay_log.location import RelayLocation, index_path, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from tests.unit.commands.dump.files import vector
from tests.unit.commands.tail.relay_logs import FILE, recorded_log
from tests.vectors.load import listing

if TYPE_CHECKING:
    from pathlib import Path

    from replica.commands.explain.answer import Answer

VECTOR = vector("11.8/transactions")
NOW = 1_700_000_090.0


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> RelayLog:
    return recorded_log(tmp_path_factory.mktemp("relay"), "11.8", "transactions", max_file_bytes=700)


def relay(log: RelayLog, gtid: str, acknowledged: Acknowledged | None = None) -> Answer:
    return explain_relay(log, Gtid.parse(gtid), acknowledged)


def page(answer: Answer, *, full: bool = False) -> str:
    return "\n".join(Page(Colours(on=False), NOW, full=full).lines(answer))


def test_a_transaction_of_a_file_as_the_servers_tool_lists_it() -> None:
    answer = explain_files([str(VECTOR)], Gtid.parse("0-1-4"))
    made = answer.transaction
    assert made is not None
    listed = [event for event in listing(VECTOR) if answer.offset <= event.offset < answer.offset + made.bytes]
    assert [(one.offset, one.bytes) for one in made.events] == [(event.offset, event.length) for event in listed]
    assert made.bytes == sum(event.length for event in listed)
    assert sum(one.bytes for one in made.types) == made.bytes
    assert [tuple(table) for table in made.tables] == [("v.t", 2, 0, 0)]
    assert made.statements == ["INSERT INTO t VALUES (1, 'kept')", "SAVEPOINT `s`", "INSERT INTO t VALUES (3, 'kept')"]
    assert (made.kind, made.server_id, made.thread_id, made.commit_id) == ("transaction", 1, 6, None)
    assert made.xid is not None


def test_the_same_in_a_relay_log_and_where_it_is_on_the_primary(log: RelayLog) -> None:
    in_file = explain_files([str(VECTOR)], Gtid.parse("0-1-4"))
    answer = relay(log, "0-1-4")
    assert answer.transaction is not None
    assert in_file.transaction is not None
    assert answer.transaction.tables == in_file.transaction.tables
    assert (answer.primary_file, answer.primary_start) == (FILE, in_file.offset)
    assert answer.primary_end == in_file.offset + in_file.transaction.bytes
    assert answer.on_disk is True
    text = page(answer)
    assert f"{FILE}, {answer.primary_start} to {answer.primary_end}" in text
    assert "committed       2023-11-14 22:13:20 UTC, 1 minute ago" in text
    assert "v.t: 2 inserted" in text


@pytest.mark.parametrize(
    ("gtid", "kind"),
    [
        ("0-1-1", "DDL statement"),
        ("0-1-11", "XA PREPARE"),
        ("0-1-14", "XA COMMIT"),
        ("0-1-15", "XA ROLLBACK"),
        ("0-1-7", "DDL statement"),
        ("7-99-1000", "transaction"),
    ],
)
def test_what_it_is(log: RelayLog, gtid: str, kind: str) -> None:
    made = relay(log, gtid).transaction
    assert made is not None
    assert (made.gtid, made.kind) == (gtid, kind)


def test_both_halves_of_an_xa_transaction(log: RelayLog) -> None:
    for answer_of in (lambda gtid: relay(log, gtid), lambda gtid: explain_files([str(VECTOR)], Gtid.parse(gtid))):
        prepare, commit, rollback = (answer_of(gtid) for gtid in ("0-1-11", "0-1-14", "0-1-15"))
        assert prepare.partner is not None
        assert commit.partner is not None
        assert rollback.partner is not None
        assert commit.transaction is not None
        assert str(prepare.partner.gtid) == "0-1-14"
        assert str(commit.partner.gtid) == "0-1-11"
        assert str(rollback.partner.gtid) == "0-1-12"
        assert [tuple(table) for table in commit.transaction.tables] == [("v.t", 1, 0, 0)]
        assert "committed as 0-1-14" in page(prepare)
        assert "reported at its XA COMMIT" in page(prepare)
        assert "prepared as 0-1-11" in page(commit)
        assert "rolled back as 0-1-15" in page(answer_of("0-1-12"))


@pytest.mark.parametrize(
    ("gtid", "reason", "words"),
    [
        ("0-1-9999", "not yet", "Not yet: the log is at 0-1-31, which is 9,968 before it"),
        ("3-1-1", "domain", "has no domain 3; it has 0, 7"),
        ("0-5-4", "other server", "belongs to another server: 0-1-4"),
        ("7-99-500", "hole", "the log goes from 7-99-2 to 7-99-1000"),
    ],
)
def test_why_it_is_not_in_a_relay_log(log: RelayLog, gtid: str, reason: str, words: str) -> None:
    answer = relay(log, gtid)
    assert answer.reason == reason
    assert words in answer.explanation
    assert answer.explanation in page(answer)
    assert json.loads(json.dumps(answer.as_dict()))["found"] is False


def test_purged_and_empty(tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "relay", "11.8", "transactions", max_file_bytes=700)
    for number in relay_numbers(log.directory)[:3]:
        relay_path(log.directory, number).unlink()
        index_path(log.directory, number).unlink()
    answer = relay(RelayLog(log.directory), "0-1-1")
    assert answer.reason == "purged"
    assert "the log begins after 0-1-" in answer.explanation
    (tmp_path / "empty").mkdir()
    assert relay(RelayLog(tmp_path / "empty"), "0-1-1").reason == "empty"


@pytest.mark.parametrize(
    ("files", "gtid", "words"),
    [
        (["11.8/transactions"], "0-1-9999", "end before it, with 0-1-31"),
        (["11.8/transactions"], "3-1-1", "nothing of domain 3"),
        (["11.8/transactions"], "0-5-4", "belongs to another server: 0-1-4"),
        (["11.8/rotation.3", "11.8/rotation.4"], "7-1-1", "begin after it, with 7-1-2"),
        (["11.8/transactions"], "7-99-500", "from 7-99-2 to 7-99-1000"),
    ],
)
def test_why_it_is_not_in_the_files(files: list[str], gtid: str, words: str) -> None:
    answer = explain_files([str(vector(name)) for name in files], Gtid.parse(gtid))
    assert answer.transaction is None
    assert words in answer.explanation


def test_acknowledged_as_far_as_the_same_primary_was_told(log: RelayLog) -> None:
    end = relay(log, "0-1-4").primary_end
    assert end is not None
    for position, received, server, known in (
        (end, end, 1, True),
        (end - 1, end, 1, False),
        (end - 1, end - 1, 1, None),
        (end, end, 2, None),
    ):
        told = Acknowledged(server, BinlogPosition(FILE, position), BinlogPosition(FILE, received))
        assert relay(log, "0-1-4", told).acknowledged is known
    told = Acknowledged(1, BinlogPosition(FILE, end), BinlogPosition(FILE, end))
    assert "acknowledged to the primary" in page(relay(log, "0-1-4", told))


def test_json_says_everything(log: RelayLog) -> None:
    told = json.loads(json.dumps(relay(log, "0-1-14").as_dict()))
    assert told["xa"] == "X'7831',X'6272616e6368',7"
    assert told["xa_partner"]["gtid"] == "0-1-11"
    assert told["end"] - told["offset"] == told["bytes"]
    assert told["committed"] == "2023-11-14 22:13:20"


def test_large_transactions_are_cut_on_the_page_and_whole_on_demand(tmp_path: Path) -> None:
    log = recorded_log(tmp_path, "11.8", "metadata_full")
    head = log.head()
    assert head is not None
    longest = max(
        (relay(log, f"0-1-{number}") for number in range(1, head.position[0].seq_no + 1)),
        key=lambda answer: len(answer.transaction.events) if answer.transaction else 0,
    )
    assert log.at(RelayLocation(1, 0)).position != head.position
    assert len(page(longest, full=True)) >= len(page(longest))


def test_changes_that_were_logged_as_statements_have_no_rows(log: RelayLog) -> None:
    answer = relay(log, "0-1-24")
    assert answer.as_dict()["statement_dml"] == {"statements": 2, "tables": ["v.s", "v.m"]}
    assert "without rows    2 statements: changes of v.s, v.m" in page(answer)
    load = relay(log, "0-1-25")
    assert load.transaction is not None
    assert load.transaction.statements[0].startswith("LOAD DATA INFILE")
    assert "without rows    1 statement: changes of v.s" in page(load)
    plain = relay(log, "0-1-4")
    assert plain.as_dict()["statement_dml"] == {"statements": 0, "tables": []}
    assert "without rows" not in page(plain)
