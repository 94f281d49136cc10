from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from replica.commands.check.initial import LINES, initial_report
from replica.commands.check.report import lines
from replica.snapshot.check.facts import Cascade
from replica.snapshot.check.verdict import judge
from tests.unit.snapshot.facts import listed, told


def test_each_table_has_a_line_refusals_first_and_a_sum() -> None:
    cascade = Cascade("of_parent", ("shop", "a"), ("ON DELETE CASCADE",))
    facts = told(
        listed("a", rows=988_198, octets=3 << 20), listed("b", cascades=(cascade,)), listed("c", engine="Aria")
    )
    report = initial_report("db1:3306", judge(facts))
    assert [(one.check, one.state) for one in report.results] == [
        ("shop.c", "missing"),
        ("shop.b", "ok"),
        ("shop.b", "warning"),
        ("shop.a", "ok"),
        ("in all", "note"),
    ]
    assert report.results[3].what == "read by its primary key (id): about 990,000 rows, 3 MiB, about 5 s"
    assert report.results[4].what == "2 tables are read: about 990,000 rows, 3 MiB, about 5 s; 1 refused"
    assert report.error is not None
    assert report.error.exit_code == 21
    *_, conclusion, _, end = lines([report], encoding="utf-8")
    assert "1 failed" in conclusion
    assert end == "ready to replicate; NOT ready to begin with the tables (the tables of db1:3306: exit code 21)"


def test_settings_of_the_server_come_before_tables() -> None:
    report = initial_report(
        "db1:3306", judge(told(listed(), variables={"binlog_row_image": "MINIMAL", "wsrep_on": "ON"}))
    )
    assert [(one.check, one.state) for one in report.results][:2] == [
        ("binlog_row_image", "warning"),
        ("wsrep_on", "warning"),
    ]


@pytest.mark.parametrize("kind", [{"engine": "MEMORY"}, {"cascades": None}, {}])
def test_ten_thousand_tables_are_a_screen_and_all_of_them_in_json(kind: dict[str, Any]) -> None:
    report = initial_report("db1:3306", judge(told(*(listed(f"t{n:05d}", rows=20, **kind) for n in range(10_000)))))
    per_table = 2 if "cascades" in kind else 1
    assert len(report.results) == LINES * per_table + 2
    rest = report.results[-2]
    assert rest.check == f"{10_000 - LINES} more"
    assert "--json lists every table" in rest.what
    assert ("9960 for engine" in rest.what) == ("engine" in kind)
    assert report.tables is not None
    assert Counter(one["state"] for one in report.tables) == {"refused" if "engine" in kind else "read": 10_000}


def test_no_table_at_all_is_a_warning() -> None:
    report = initial_report("db1:3306", judge(told()))
    assert [(one.check, one.state) for one in report.results] == [("in all", "warning")]
    assert report.error is None


def test_long_names_stand_in_one_column_and_control_characters_do_nothing() -> None:
    report = initial_report("db1:3306", judge(told(listed("x" * 25), listed("evil\x1b[2J"))))
    text = "\n".join(lines([report], encoding="utf-8"))
    assert text.count("read by its primary key (id): hardly any rows, 0 B, under a second") == 2
    assert text.endswith("ready to replicate; ready to begin with the tables")
    assert len({line.index("read by its") for line in text.splitlines() if "read by its" in line}) == 1
    assert "\x1b[2J" not in text
