"""The page about a mirror: its lines, its gaps, and that it loads nothing and runs nothing."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import ConfigError
from streaming_source.mirroring.control import report
from streaming_source.mirroring.control.control_history import Moment
from streaming_source.mirroring.control.control_table import FAILED
from tests.unit.streaming_source.mirroring.control.status_rows import HOSTILE, NOW, control_row
from tests.unit.streaming_source.mirroring.control.test_status_table import Page

if TYPE_CHECKING:
    from pathlib import Path

SPARK: Any = None


def moments(*seconds: float) -> list[Moment]:
    return [
        Moment(NOW + dt.timedelta(seconds=one), 0.5, Counter(current=1), {("shop", "a"): int(10 * one)})
        for one in seconds
    ]


@pytest.fixture
def mirrored(monkeypatch: pytest.MonkeyPatch) -> list[Moment]:
    """Give the page a control table without Spark, which tests/mirroring/sessions/test_without_delta.py has."""
    history = moments(0, 1, 2, 3)
    rows = [control_row("a"), control_row(HOSTILE, state=FAILED, error=HOSTILE)]
    monkeypatch.setattr(report, "control_of", lambda *_: ("`lake`.`mirror_control`", rows))
    monkeypatch.setattr(report, "control_history", lambda *_: history)
    monkeypatch.setattr(report, "audits_of", lambda *_: {})
    monkeypatch.setattr(report, "table_beside", lambda *_: None)
    return history


def test_the_page_loads_and_runs_nothing(mirrored: list[Moment], tmp_path: Path) -> None:
    assert mirrored
    file = report.mirror_report(SPARK, control="x", file=tmp_path / "mirror.html")
    written = file.read_text(encoding="utf-8")
    page = Page(written)
    assert not page.tags & {"script", "img", "link", "iframe", "a"}
    assert not any(name in {"src", "href", "onerror"} for name, _ in page.attributes)
    assert "default-src 'none'" in written
    assert "//" not in written
    assert "There was no audit yet." in page.texts
    assert "now 0.5 s, most 0.5 s" in page.texts
    assert "now 10, most 10" in page.texts
    assert [one.name for one in tmp_path.iterdir()] == ["mirror.html"]


def test_a_page_is_replaced_and_an_impossible_file_is_refused(mirrored: list[Moment], tmp_path: Path) -> None:
    mirrored.clear()
    file = tmp_path / "mirror.html"
    file.write_text("old")
    report.mirror_report(SPARK, control="x", file=str(file))
    assert "There are no values yet." in file.read_text(encoding="utf-8")
    with pytest.raises(ConfigError, match=r"cannot be written to .*none/mirror\.html: No such file or directory"):
        report.mirror_report(SPARK, control="x", file=tmp_path / "none" / "mirror.html")


def test_a_line_is_interrupted_where_the_mirror_did_not_run() -> None:
    points = [(NOW + dt.timedelta(seconds=one), 1.0) for one in (0, 10, 20, 30, 500, 510)]
    places = [(float(number), 0.0) for number in range(6)]
    assert [len(part) for part in report._parts(points, places)] == [4, 2]
    assert [len(part) for part in report._parts(points[:4], places[:4])] == [4]
    assert [len(part) for part in report._parts(points[:1], places[:1])] == [1]


@pytest.mark.parametrize(("most", "end"), [(0, 1), (0.3, 0.5), (1, 1), (40.6, 50), (2950, 5000), (99, 100)])
def test_an_axis_ends_at_a_round_number(most: float, end: float) -> None:
    assert report._axis(most) == pytest.approx(end)
