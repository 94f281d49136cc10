from __future__ import annotations

import pytest

from replica.errors import AuthenticationError, PrerequisiteError
from replica.snapshot.check.verdict import (
    NAMED,
    SHOWN_CHARACTERS,
    InitialVerdicts,
    judge,
    require,
    summary,
    warnings_of,
)
from tests.unit.snapshot.facts import listed, told


def words(verdicts: InitialVerdicts) -> dict[str, list[str]]:
    kinds = {"refusals": verdicts.refusals, "warnings": verdicts.warnings, "notes": verdicts.notes}
    return {kind: [one.check for one in reasons] for kind, reasons in kinds.items() if reasons}


def test_a_server_that_is_set_up_well_is_required_and_passes() -> None:
    verdicts = judge(told(listed("b", rows=400_000), listed("a")))
    require(verdicts)
    assert words(verdicts) == {}
    assert [one.shown for one in verdicts.tables] == ["shop.a", "shop.b"]
    assert (verdicts.read, verdicts.refused, verdicts.seconds) == (verdicts.tables, (), 2.0)


@pytest.mark.parametrize(
    ("facts", "word", "fix"),
    [
        ({"variables": {"log_bin": "OFF"}}, "log_bin", "log_bin=binlog"),
        ({"variables": {"binlog_format": "MIXED"}}, "binlog_format", "SET GLOBAL binlog_format = 'ROW';"),
        ({"variables": {"binlog_storage_engine": "innodb"}}, "binlog_storage_engine", "binlog_storage_engine"),
        ({"replicates_from": 1}, "log_slave_updates", "log_slave_updates=ON"),
        ({"repeatable": False, "isolation": "READ-COMMITTED"}, "tx_isolation", "proxy"),
    ],
)
def test_what_a_server_lacks_is_an_error_with_its_remedy(facts: dict[str, object], word: str, fix: str) -> None:
    verdicts = judge(told(listed(), **facts))
    assert words(verdicts)["refusals"] == [word]
    with pytest.raises(PrerequisiteError) as caught:
        require(verdicts)
    assert verdicts.refusals[0].what in caught.value.message
    assert fix in caught.value.hint


def test_a_replica_that_logs_what_it_replicates_is_no_worse_than_a_primary() -> None:
    assert words(judge(told(listed(), replicates_from=2, variables={"log_slave_updates": "ON"}))) == {}
    assert words(judge(told(listed(), was_replica=True))) == {"warnings": ["log_slave_updates"]}


def test_settings_that_matter_less_are_told() -> None:
    assert words(judge(told(listed(), isolation="READ-COMMITTED"))) == {"notes": ["tx_isolation"]}
    assert "init_connect" in judge(told(listed(), isolation="READ-COMMITTED")).notes[0].what
    everywhere = told(listed(), isolation="SERIALIZABLE", variables={"tx_isolation": "SERIALIZABLE"})
    assert "(tx_isolation)" in judge(everywhere).notes[0].what
    semi_sync = {"rpl_semi_sync_master_enabled": "ON", "rpl_semi_sync_master_wait_point": "AFTER_SYNC"}
    assert words(judge(told(listed(), variables=semi_sync))) == {"notes": ["semi_sync wait"]}
    assert words(judge(told(listed(), variables={"wsrep_on": "ON"}))) == {"warnings": ["wsrep_on"]}


def test_binlogs_that_do_not_last_as_long_as_the_reading_are_warned_of() -> None:
    table = listed(rows=200_000 * 3600)  # an hour
    assert words(judge(told(table, expiry_s=7201.0))) == {}
    verdicts = judge(told(table, expiry_s=7199.0))
    assert words(verdicts) == {"warnings": ["retention"]}
    assert "after 2 h" in verdicts.warnings[0].what
    assert "may take 1 h" in verdicts.warnings[0].what
    require(verdicts)


def test_tables_that_the_catalog_hides_are_warned_of() -> None:
    verdicts = judge(told(listed(), hiding=("shop.*", "*.*")))
    assert [one.fix for one in verdicts.warnings] == [
        "GRANT SELECT ON `shop`.* TO 'repl'@'%';",
        "GRANT SELECT ON *.* TO 'repl'@'%';",
    ]


def test_a_named_table_that_is_not_seen_is_refused_by_the_reason_for_it() -> None:
    verdicts = judge(told(unseen=((("shop", "secret"), "denied"), (("shop", "gone"), "absent"))))
    assert [(one.shown, one.reasons[0].check) for one in verdicts.refused] == [
        ("shop.gone", "absent"),
        ("shop.secret", "select"),
    ]
    with pytest.raises(PrerequisiteError, match=r"shop\.gone: it does not exist"):
        require(verdicts)


def test_a_view_is_no_table_unless_it_was_named() -> None:
    view = listed("totals", type="VIEW", engine=None, key=())
    assert judge(told(listed(), view)).tables == judge(told(listed())).tables
    named = judge(told(listed(), view, named=frozenset({view.name})))
    assert [one.reasons[0].check for one in named.refused] == ["view"]


def test_missing_grants_alone_are_an_error_of_the_account() -> None:
    denied = listed("a", readable=False)
    with pytest.raises(AuthenticationError) as caught:
        require(judge(told(denied, listed("b"))))
    assert (caught.value.exit_code, caught.value.code) == (31, 1142)
    with pytest.raises(PrerequisiteError) as other:
        require(judge(told(denied, listed("b", engine="Aria"))))
    assert "(1) GRANT SELECT ON `shop`.`a`" in other.value.hint
    assert "(2) ALTER TABLE `shop`.`b` ENGINE=InnoDB;" in other.value.hint


def test_ten_thousand_refusals_are_one_error_of_bounded_length() -> None:
    names = [f"t{number:05d}_{'x' * 50}" for number in range(10_000)]
    verdicts = judge(told(*(listed(name, engine="MyISAM") for name in names)))
    assert summary(verdicts.refused) == {"engine": 10_000}
    with pytest.raises(PrerequisiteError) as caught:
        require(verdicts)
    assert f"; and {10_000 - NAMED} more tables." in caught.value.message
    assert names[NAMED - 1] in caught.value.message
    assert names[NAMED] not in caught.value.message
    assert "and 9995 more;" in caught.value.hint
    assert len(str(caught.value)) < NAMED * (SHOWN_CHARACTERS + 70) + 2000


def test_one_long_reason_does_not_fill_an_error() -> None:
    verdicts = judge(told(listed(engine=None, fault="x" * 100_000)))
    with pytest.raises(PrerequisiteError) as caught:
        require(verdicts)
    assert len(caught.value.message) < SHOWN_CHARACTERS + 200


def test_warnings_for_a_log_are_few_and_name_tables() -> None:
    verdicts = judge(told(*(listed(f"t{number:05d}", cascades=None) for number in range(10_000)), hiding=("shop.*",)))
    said = list(warnings_of(verdicts))
    assert len(said) == 1 + NAMED + 1
    assert said[0].endswith("(fix: GRANT SELECT ON `shop`.* TO 'repl'@'%';)")
    assert said[1].startswith("shop.t00000: the server does not show whether a foreign key")
    assert said[-1].startswith(f"and warnings about {10_000 - NAMED} more tables")
    assert list(warnings_of(judge(told(listed())))) == []


@pytest.mark.parametrize("image", ["MINIMAL", "NOBLOB"])
def test_images_without_all_columns_are_warned_of_and_refused_for_a_settled_position(image: str) -> None:
    facts = told(listed(), variables={"binlog_row_image": image})
    verdicts = judge(facts)
    assert words(verdicts)["warnings"] == ["binlog_row_image"]
    require(verdicts)
    with pytest.raises(PrerequisiteError, match=f"binlog_row_image is {image}.*undone") as caught:
        require(judge(facts, settled=True))
    assert "SET GLOBAL binlog_row_image = 'FULL';" in caught.value.hint


def test_images_that_are_whole_before_a_change_serve_for_everything() -> None:
    verdicts = judge(told(listed(), variables={"binlog_row_image": "FULL_NODUP"}), settled=True)
    assert not verdicts.refusals
    assert not verdicts.warnings
