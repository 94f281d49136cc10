from __future__ import annotations

import pytest

from replica.errors import DisconnectedError, PositionLostError, PrerequisiteError
from replica.handshake.primary.server import ServerInfo
from replica.handshake.start.resume import PlaceState, Stored, verify
from replica.protocol.groups.fingerprint import Fingerprint
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from tests.unit.handshake.steps import converse

PLACE = BinlogPosition("bin.000003", 900)


def server(server_id: int = 1, **more: object) -> ServerInfo:
    about = {"version": "10.11.19", "account": "r@%", "may_replicate": True, "log_bin": True, "uid": "this"}
    return ServerInfo(server_id=server_id, **(about | more))  # type: ignore[arg-type]


def stored(position: str, primary: BinlogPosition | None = PLACE, server_id: int | None = 1) -> Stored:
    return Stored(GtidPosition.parse(position), primary, server_id)


def answers(
    state: str,
    *,
    at: str | None = None,
    start: str | None = None,
    file: str = "bin.000003",
    replicated: str = "",
    logs: str = "1",
    running: str = "0",
) -> dict[str, list[tuple[str | None, ...]]]:
    return {
        "SELECT @@GLOBAL.gtid_binlog_state": [(state, replicated, logs)],
        "SELECT BINLOG_GTID_POS('bin.000003', 900)": [(at,)],
        "SELECT BINLOG_GTID_POS('bin.000003', 4)": [(start,)],
        "SHOW GLOBAL STATUS LIKE 'Slaves_running'": [("Slaves_running", running)],
        "SHOW STATUS LIKE 'Binlog_snapshot_file'": [("Binlog_snapshot_file", file)],
    }


def lost(where: Stored, given: dict[str, list[tuple[str | None, ...]]], server_id: int = 1) -> str:
    with pytest.raises(PositionLostError) as caught:
        converse(verify(where, server(server_id)), given)
    assert "new checkpoint" in caught.value.hint
    return caught.value.message


def test_the_same_place_with_the_same_gtids_is_fine() -> None:
    converse(verify(stored("0-1-3,7-2-9"), server(1)), answers("0-1-8,7-2-9", at="7-2-9,0-1-3"))


@pytest.mark.parametrize("resume", ["0-1-1", ""])
def test_where_the_dump_starts_earlier_the_place_is_of_what_was_reached(resume: str) -> None:
    where = Stored(GtidPosition.parse(resume), PLACE, 1, GtidPosition.parse("0-1-3"))
    _, looked_up = converse(verify(where, server(1)), answers("0-1-8", at="0-1-3"))
    assert looked_up is PlaceState.PLACE
    assert "does not have 0-1-3" in lost(where, answers("0-1-2"))
    assert "it now has 0-1-4" in lost(where, answers("0-1-8", at="0-1-4", start="0-1-1"))


def test_an_empty_position_asks_nothing() -> None:
    said, _ = converse(verify(stored(""), server(1)), {})
    assert said == []


@pytest.mark.parametrize("state", ["", "0-1-2", "5-1-100"])
def test_reset_with_fewer_transactions_than_stored(state: str) -> None:
    message = lost(stored("0-1-3"), answers(state))
    assert "0-1-3" in message
    assert state or "no GTID at all" in message


def test_reset_with_equally_many_transactions() -> None:
    # The sequence number is there again, in a younger file: the server alone would accept it.
    message = lost(stored("0-1-3"), answers("0-1-3", file="bin.000001"))
    assert "bin.000001" in message
    assert "reset" in message


def test_reset_with_more_transactions_and_the_file_name_reached_again() -> None:
    assert "no event group ends at bin.000003:900" in lost(stored("0-1-3"), answers("0-1-50", start="0-1-40"))
    assert "it now has 0-1-44" in lost(stored("0-1-3"), answers("0-1-50", at="0-1-44", start="0-1-40"))


def test_reset_seen_at_the_place_although_the_sequence_number_fits_later() -> None:
    assert "it now has 0-1-2" in lost(stored("0-1-3"), answers("0-1-50", at="0-1-2", start=""))
    assert "it now has no GTID" in lost(stored("0-1-3"), answers("0-1-50", at="", start=""))


def test_a_purged_file_falls_back_to_the_binlog_state() -> None:
    converse(verify(stored("0-1-3"), server(1)), answers("0-1-50", file="bin.000009"))


def test_another_server_is_judged_by_its_binlog_state_alone() -> None:
    said, _ = converse(verify(stored("0-1-3", server_id=1), server(2)), answers("0-2-9,0-1-3", at="0-1-2"))
    assert len(said) == 1


def test_a_diverged_server() -> None:
    assert "diverged" in lost(stored("0-1-7"), answers("0-1-5,0-2-9"), server_id=2)
    assert "diverged" in lost(stored("0-3-7"), answers("0-1-5,0-2-9"), server_id=2)


def test_a_server_that_lags_may_be_waited_for() -> None:
    with pytest.raises(DisconnectedError, match="does not have 0-1-7 yet"):
        converse(verify(stored("0-1-7"), server(2), may_lag=True), answers("0-1-5"))
    with pytest.raises(PositionLostError):
        converse(verify(stored("0-1-7"), server(2), may_lag=True), answers("0-1-5,0-2-9"))


def test_what_the_server_has_only_replicated_counts_as_the_server_counts_it() -> None:
    # A replica without log_slave_updates accepts its own gtid_slave_pos as a start.
    where = stored("0-1-7", primary=None)
    converse(verify(where, server(2)), answers("", replicated="0-1-7", logs="0"))
    converse(verify(where, server(2)), answers("", replicated="0-1-7", logs="1", running="1"))


def test_a_replica_that_logs_nothing_of_what_it_goes_on_to_replicate_is_refused() -> None:
    given = answers("0-2-3", replicated="0-1-7", logs="0", running="1")
    with pytest.raises(PrerequisiteError, match="does not log what it replicates") as caught:
        converse(verify(stored("0-1-7"), server(2)), given)
    assert "log_slave_updates" in caught.value.hint
    converse(verify(stored("0-2-3", server_id=1), server(2)), given)  # its own transactions are in its binlog


def test_a_replica_that_went_on_without_logging_never_gets_what_is_missing() -> None:
    given = answers("", replicated="0-1-9", logs="0")
    with pytest.raises(PositionLostError, match="replicated up to 0-1-9 without logging"):
        converse(verify(stored("0-1-7"), server(2), may_lag=True), given)


def test_a_start_ahead_of_the_place_in_another_domain_is_fine() -> None:
    # The user started domain 7 at a GTID that lies later in the binlog than the last group of domain 0.
    converse(verify(stored("0-1-3,7-2-9"), server(1)), answers("0-1-8,7-2-20", at="7-2-4,0-1-3"))


LAST = Fingerprint(Gtid(0, 1, 3), 1_700_000_000, 1, 2, 3)


@pytest.mark.parametrize(
    ("uid", "server_id", "is_of"),
    [("this", 1, True), ("this", 9, True), ("other", 1, False), (None, 1, None), (None, 9, False), (None, None, None)],
)
def test_a_server_is_known_by_its_uid_and_never_by_its_server_id_alone(
    uid: str | None, server_id: int | None, *, is_of: bool | None
) -> None:
    assert Stored(GtidPosition.parse("0-1-3"), PLACE, server_id, uid=uid).is_of(server()) is is_of


def test_another_server_with_the_same_server_id_is_not_asked_for_our_place() -> None:
    """Galera's nodes have one server id: the place is another node's, and says nothing here."""
    where = Stored(GtidPosition.parse("0-1-3"), PLACE, 1, uid="other", last=LAST)
    said, here = converse(verify(where, server()), answers("0-1-8", at="0-1-2"))
    assert here is PlaceState.ELSEWHERE
    assert not any("BINLOG_GTID_POS" in str(one) for one in said)


def test_where_only_the_server_id_is_known_a_place_that_does_not_fit_leaves_it_to_the_content() -> None:
    where = Stored(GtidPosition.parse("0-1-3"), PLACE, 1, last=LAST)
    assert converse(verify(where, server()), answers("0-1-8", at="0-1-2"))[1] is PlaceState.ELSEWHERE
    assert converse(verify(where, server()), answers("0-1-8", at="0-1-3"))[1] is PlaceState.PLACE


def test_what_only_another_galera_node_has_is_not_missed() -> None:
    node = server(wsrep_on=True, wsrep_gtid_mode=True, wsrep_gtid_domain_id=7)
    where = Stored(GtidPosition.parse("7-1-3,100-1-9"), PLACE, 1, uid="other")
    assert converse(verify(where, node), answers("7-1-8,101-1-2"))[1] is PlaceState.ELSEWHERE
    with pytest.raises(PositionLostError, match="7-1-9"):
        converse(verify(Stored(GtidPosition.parse("7-1-9")), node), answers("7-1-8,101-1-2"))
    with pytest.raises(PositionLostError, match="100-1-9"):  # no Galera, or one without common GTIDs
        converse(verify(where, server(wsrep_on=True)), answers("7-1-8,101-1-2"))
