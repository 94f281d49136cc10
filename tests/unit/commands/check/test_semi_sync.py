from __future__ import annotations

import pytest

from replica.commands.check.server import semi_sync
from tests.unit.commands.check.facts import GOOD, config, primary, variables

ON = config(semi_sync=True)


def test_a_good_set_up() -> None:
    assert [one.state for one in semi_sync(GOOD, ON)] == ["ok"] * 4


def test_whether_commits_wait_now_is_said() -> None:
    assert "commits wait; semi-synchronous replicas connected: 1" in next(iter(semi_sync(GOOD, ON))).what
    assert (
        "do not wait at this moment; semi-synchronous replicas connected: 0"
        in next(iter(semi_sync(primary(semi_sync=False, semi_sync_clients=0), ON))).what
    )


def test_nothing_is_said_where_nobody_wants_it() -> None:
    assert list(semi_sync(variables(rpl_semi_sync_master_enabled="OFF"), config())) == []
    assert [one.state for one in semi_sync(GOOD, config())] == ["note"]


@pytest.mark.parametrize("changed", [{"rpl_semi_sync_master_enabled": ""}, {"binlog_storage_engine": "innodb"}])
def test_a_server_that_cannot(changed: dict[str, str]) -> None:
    (one,) = semi_sync(variables(**changed), ON)
    assert (one.check, one.state) == ("semi_sync", "missing")
    assert "semi_sync=false" in one.fix


@pytest.mark.parametrize(
    ("changed", "check", "fix"),
    [
        ({"rpl_semi_sync_master_enabled": "OFF"}, "semi_sync", "SET GLOBAL rpl_semi_sync_master_enabled = ON;"),
        ({"rpl_semi_sync_master_wait_point": "AFTER_COMMIT"}, "semi_sync wait", "wait_point = 'AFTER_SYNC';"),
        ({"rpl_semi_sync_master_timeout": "500"}, "semi_sync timeout", "master_timeout = 10000;"),
        ({"sync_binlog": "0"}, "semi_sync durability", "SET GLOBAL sync_binlog = 1;"),
        ({"innodb_flush_log_at_trx_commit": "2"}, "semi_sync durability", "innodb_flush_log_at_trx_commit = 1;"),
    ],
)
def test_what_weakens_the_promise(changed: dict[str, str], check: str, fix: str) -> None:
    (one,) = [one for one in semi_sync(variables(**changed), ON) if one.state != "ok"]
    assert (one.check, one.state) == (check, "warning")
    assert fix in one.fix


def test_flushing_more_than_needed_is_fine() -> None:
    assert {one.state for one in semi_sync(variables(innodb_flush_log_at_trx_commit="3"), ON)} == {"ok"}


def test_what_happens_while_no_replica_is_there_is_said() -> None:
    def words(**changed: str) -> str:
        return next(one.what for one in semi_sync(variables(**changed), ON) if one.check == "semi_sync timeout")

    assert "the next commit waits 10 s" in words()
    assert "commits continue at once" in words(rpl_semi_sync_master_wait_no_slave="OFF")


def test_acknowledging_what_is_not_on_disk_is_a_warning() -> None:
    found = semi_sync(GOOD, config(semi_sync=True, ack_policy="receive"))
    assert [one.check for one in found if one.state == "warning"] == ["ack_policy"]
