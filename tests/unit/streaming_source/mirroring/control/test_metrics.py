"""The lag of a batch: by the newest commit of its tables, else by the last transaction of the binlog."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import replica
from replica.protocol.groups.fingerprint import Fingerprint
from replica.protocol.gtid import Gtid, GtidPosition
from streaming_source.mirroring.control.metrics import METRICS, MirrorLag, metric_prefix
from streaming_source.offsets.offset import SourceOffset

NOW = dt.datetime(2026, 11, 23, 12, 0, 10, 500_000, dt.UTC)
OLD = dt.datetime(2001, 9, 9, tzinfo=dt.UTC)


def end(time: int | None) -> SourceOffset:
    last = None if time is None else Fingerprint(Gtid.parse("0-1-7"), time, 0, 0, 0)
    return SourceOffset(GtidPosition.parse("0-1-7"), GtidPosition.parse("0-1-7"), last=last)


def ago(seconds: float) -> dt.datetime:
    return NOW - dt.timedelta(seconds=seconds)


def test_the_newest_commit_of_the_batch_counts() -> None:
    assert MirrorLag().at(NOW, [(ago(9), None), (None, ago(1)), (ago(2.5), ago(100))], end(1)) == 2.5


def test_without_changes_the_last_transaction_counts() -> None:
    assert MirrorLag().at(NOW, [(None, None)], end(int(NOW.timestamp()) - 3)) == 3.5
    assert MirrorLag().at(NOW, [], end(None)) is None
    assert MirrorLag().at(NOW, [], end(0)) is None


def test_a_clock_that_is_ahead_of_ours_is_no_negative_lag() -> None:
    assert MirrorLag().at(NOW, [(ago(-5), None)], end(None)) == 0.0


def test_a_session_that_sets_its_clock_back_makes_no_lag_of_decades() -> None:
    """SET timestamp: the lag is not longer than since the change before, or since the target was made."""
    lag = MirrorLag()
    assert lag.at(NOW, [(OLD, ago(60))], end(None)) == 60.0
    assert lag.at(NOW, [(ago(7), ago(60))], end(None)) == 7.0
    assert lag.at(NOW, [(OLD, None)], end(None)) == 7.0
    assert lag.at(NOW, [], end(int(OLD.timestamp()))) == 7.0


def test_a_session_that_sets_its_clock_ahead_hides_no_later_lag() -> None:
    lag = MirrorLag()
    assert lag.at(NOW, [(dt.datetime(2105, 1, 1, tzinfo=dt.UTC), ago(60))], end(None)) == 0.0
    assert lag.at(NOW, [(ago(30), ago(60))], end(None)) == 30.0


def test_the_dashboard_asks_for_every_metric_by_the_name_that_spark_gives_it() -> None:
    """PrometheusServlet of Spark: `metrics_`, the name with `_` for other characters, and `_Value`."""
    dashboard = json.loads((Path(replica.__file__).parent / "packaging" / "grafana-dashboard.json").read_text())
    listed = [target for panel in dashboard["panels"] for target in panel.get("targets", ())]
    ours = [one for one in listed if "_AccumulatorSource_mirror_" in one["expr"]]
    assert {one["legendFormat"].rpartition(" ")[2] for one in ours} == {"{{mirror}}"}
    asked = [re.findall(r'"(metrics_[^"]*)"', one["expr"]) for one in ours]
    for name, _ in METRICS:
        source = f"app-1.driver.AccumulatorSource.{metric_prefix('`lake`.`mirror_control`')}.{name}"
        exported = f"metrics_{re.sub('[^a-zA-Z0-9]', '_', source)}_Value"
        found = [two for two in asked if all(re.fullmatch(one, exported) for one in two)]
        assert len(found) == 1, name
        mirror = re.fullmatch(found[0][1], exported)
        assert mirror is not None
        assert mirror[1] == "lake_mirror_control"
