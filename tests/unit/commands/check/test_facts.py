from __future__ import annotations

import pytest

from replica.commands.check.server import OtherReplica, ServerFacts, ask_facts
from replica.errors import ServerError
from replica.handshake.primary.server import ServerInfo
from replica.protocol.gtid import Gtid, GtidPosition
from tests.unit.handshake.primary.test_server import ANSWERS, VARIABLES
from tests.unit.handshake.steps import converse

PRIMARY = {
    "SHOW REPLICA HOSTS": [("77", "replica1", "3306", "1")],
    "SELECT TIMESTAMPDIFF": [("1800000000000000", "0-1-100", "1")],
    "SHOW STATUS LIKE 'Binlog_snapshot_file'": [("Binlog_snapshot_file", "bin.000002")],
    "SELECT BINLOG_GTID_POS('bin.000001', 4)": [(None,)],
    "SELECT BINLOG_GTID_POS('bin.000002', 4)": [("0-1-40",)],
    "SHOW BINARY LOGS": [("bin.000002", "1234")],
    "SELECT @@GLOBAL.gtid_binlog_state": [("0-1-100,0-2-7", "0-2-7")],
    "SELECT COUNT(*)": [("3",)],
    "SHOW SESSION STATUS": [("Ssl_cipher", "TLS_AES_256_GCM_SHA384"), ("Ssl_version", "TLSv1.3")],
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_annotate": [("sync_binlog", "1"), ("read_only", "off")],
    "SHOW BINLOG STATUS": [("bin.000002", "1234", "shop", "")],
    **ANSWERS,
}
DENIED = ServerError("Access denied; you need (at least one of) the X privilege(s)", code=1227)


def test_everything_is_read() -> None:
    said, facts = converse(ask_facts(), PRIMARY)
    assert isinstance(facts, ServerFacts)
    assert facts.replicas == (OtherReplica(77, "replica1"),)
    assert facts.binlogs is not None
    assert [(one.name, one.size) for one in facts.binlogs] == [("bin.000002", 1234)]
    assert facts.oldest == GtidPosition.parse("0-1-40")
    assert facts.binlog_state == {Gtid(0, 1, 100), Gtid(0, 2, 7)}
    assert (facts.tls, facts.tables_visible, facts.filters) == ("TLSv1.3 TLS_AES_256_GCM_SHA384", 3, ("shop", ""))
    assert (facts.variable("read_only"), facts.variable("wsrep_on")) == ("OFF", "")
    # Once registered, this connection is in the list itself.
    assert said[0] == "SHOW REPLICA HOSTS"
    assert bytes.fromhex("15 00000000") in [one[:5] for one in said if isinstance(one, bytes)]


def test_questions_that_are_refused_are_no_end() -> None:
    refused = dict.fromkeys(("SHOW REPLICA HOSTS", "SHOW BINARY LOGS", "SHOW BINLOG STATUS"), DENIED)
    _, facts = converse(ask_facts(), {**PRIMARY, **refused})
    assert isinstance(facts, ServerFacts)
    assert (facts.replicas, facts.binlogs, facts.filters) == (None, None, None)
    with pytest.raises(ServerError, match="gone"):
        converse(ask_facts(), {**PRIMARY, "SHOW REPLICA HOSTS": ServerError("gone", code=1053)})


def test_a_server_that_is_not_mariadb_is_asked_no_more() -> None:
    others = [row for row in VARIABLES if row[0] != "gtid_domain_id"]
    unknown = ServerError("You have an error in your SQL syntax", code=1064)
    answers = {**PRIMARY, "SHOW GLOBAL VARIABLES": others, "SHOW REPLICA HOSTS": unknown}
    said, found = converse(ask_facts(), answers)
    assert isinstance(found, ServerInfo)
    assert len(said) == 3


def test_filters_are_variables_in_newer_servers() -> None:
    key = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('binlog_annotate"
    newer = {**PRIMARY, key: [("binlog_do_db", ""), ("binlog_ignore_db", "logs")], "SHOW BINLOG STATUS": DENIED}
    _, facts = converse(ask_facts(), newer)
    assert isinstance(facts, ServerFacts)
    assert facts.filters == ("", "logs")
