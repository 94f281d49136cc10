"""lag(): progress reports as Spark gives them, read into fields and one line of words."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.listener import StreamingQueryProgress

from replica.errors import ConfigError
from streaming_source.offsets.offset import SourceOffset
from streaming_source.sinks import query_lag
from streaming_source.sinks.query_lag import Lag, lag

if TYPE_CHECKING:
    from collections.abc import Callable

AT = "2026-11-21T22:30:20.940Z"


def offset(gtid: str, **report: object) -> dict[str, Any]:
    return {"v": 1, "gtid": gtid, "resume": gtid, "server": {}, **report}


def progress(*sources: tuple[object, object], rate: float | str = 1000.0) -> StreamingQueryProgress:
    """A report as Spark's JSON has it: offsets are objects in it, and None where there is none."""
    report = {
        "id": str(UUID(int=1)),
        "runId": str(UUID(int=2)),
        "name": None,
        "timestamp": AT,
        "batchId": 7,
        "batchDuration": 5,
        "durationMs": {},
        "eventTime": {},
        "stateOperators": [],
        "observedMetrics": {},
        "sink": {"description": "s", "numOutputRows": -1},
        "sources": [
            {
                "description": "PythonMicroBatchStream",
                "startOffset": None,
                "endOffset": end,
                "latestOffset": head,
                "numInputRows": 10,
                "inputRowsPerSecond": 1.0,
                "processedRowsPerSecond": rate,
                "metrics": {},
            }
            for end, head in sources
        ],
    }
    return StreamingQueryProgress.fromJson(json.loads(json.dumps(report)))


def test_the_line_tells_how_far_the_tables_are_read() -> None:
    reading = {
        "tables": 8,
        "tablesDone": 3,
        "reading": ["shop.orders"],
        "rows": 1_200_000,
        "bytes": 3 << 20,
        "rowsPerSecond": 40_000,
        "estimatedRows": 2_000_000,
        "secondsLeft": 20,
    }
    at = offset("0-1-9")
    found = lag(progress((at, offset("0-1-9", snapshotProgress=reading))))
    assert found.snapshot == ("3 of 8 tables read, 1200000 rows (3 MiB), 40000 rows/s; about 20 s left; at shop.orders")
    assert str(found).startswith(f"caught up at 0-1-9; {found.snapshot}; batch 7")
    waits = {**reading, "waitsFor": "a position that the server has surely committed", "reading": []}
    text = lag(progress((at, offset("0-1-9", snapshotProgress=waits)))).snapshot or ""
    assert text.endswith("; waiting: a position that the server has surely committed")


class Query:
    """What lag() asks of a StreamingQuery."""

    def __init__(self, report: StreamingQueryProgress | None, *, active: bool = True) -> None:
        self.lastProgress = report
        self.isActive = active
        self.status = {"message": "", "isDataAvailable": True, "isTriggerActive": active}


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets how long ago the report was; a moment, unless a test says so."""
    reported = datetime.fromisoformat(AT).timestamp()

    def ago(seconds: float) -> None:
        monkeypatch.setattr(query_lag.time, "time", lambda: reported + seconds)

    ago(1)
    return ago


def test_old_figures_are_called_old_before_all_else(clock: Callable[[float], None]) -> None:
    report = progress((offset("0-1-5"), offset("0-1-5")))
    clock(14)  # an idle query reports every ten seconds
    assert str(lag(Query(report))).startswith("caught up at 0-1-5;")
    clock(195)
    known = lag(Query(report))
    assert known.age_seconds == 195
    before = "as of 3 min 15 s ago, before the batch that is running: caught up at 0-1-5; batch 7 as of"
    assert str(known).startswith(before)
    waiting = Query(report)  # for a trigger that comes every five minutes
    waiting.status["isTriggerActive"] = False
    assert str(lag(waiting)).startswith("as of 3 min 15 s ago: caught up at 0-1-5;")
    ended = str(lag(Query(report, active=False)))
    assert ended.startswith("as of 3 min 15 s ago: caught up at 0-1-5; the query has ended")
    assert str(lag(report)).startswith("caught up at 0-1-5;")  # a report that was given is as old as it is
    clock(-30)  # Spark's clock is ahead
    assert lag(Query(report)).age_seconds == 0


def test_nothing_is_known_before_the_first_report() -> None:
    known = lag(Query(None))
    assert known == Lag(running=True)
    assert not known.caught_up
    assert str(known) == "nothing known yet: the query has not reported any progress"


def test_behind_in_bytes_seconds_and_transactions() -> None:
    end, head = offset("0-1-4371,5-1-9"), offset("0-2-4711,5-1-10", bytesBehind=3_355_443, secondsBehind=12)
    known = lag(Query(progress((end, head))))
    assert (known.bytes_behind, known.seconds_behind, known.transactions_behind) == (3_355_443, 12, 341)
    assert (known.batch, known.as_of, known.running) == (7, AT, True)
    assert str(known) == (
        "3.2 MiB, 12 s and at most 341 transactions behind: at 0-1-4371,5-1-9 of 0-2-4711,5-1-10, reading 1000 rows/s; "
        f"batch 7 as of {AT}"
    )


def test_caught_up_needs_no_figures() -> None:
    known = lag(progress((offset("0-1-5"), offset("0-1-5"))))
    assert known.caught_up
    assert (known.bytes_behind, known.seconds_behind, known.transactions_behind, known.running) == (0, 0, 0, None)
    assert str(known).startswith("caught up at 0-1-5;")


def test_a_head_that_is_not_reported_yet_is_unknown() -> None:
    known = lag(progress((offset("0-1-5"), None)))
    assert (known.position, known.head, known.bytes_behind, known.transactions_behind) == ("0-1-5", None, None, None)
    assert "not known yet" in str(known)


def test_a_domain_that_began_since_has_no_distance() -> None:
    known = lag(progress((offset("0-1-5"), offset("0-1-5,3-1-100", bytesBehind=10, secondsBehind=0))))
    assert known.transactions_behind is None
    assert str(known).startswith("10 B and less than 1 s behind: at 0-1-5 of 0-1-5,3-1-100")


def test_warnings_are_in_the_line() -> None:
    loss = [{"after": "0-1-2", "upTo": "0-1-4"}, {"after": "", "upTo": "1-1-1"}]
    head = offset("0-1-9", bytesBehind=1, secondsBehind=1, daemonDownSeconds=75, rowsWaiting=3, dataLoss=loss)
    text = str(lag(Query(progress((offset("0-1-5"), head)), active=False)))
    for words in ("the query has ended", "down for 1 min 15 s", "3 rows wait"):
        assert words in text
    assert "transactions were lost: after 0-1-2 up to 0-1-4; after the beginning up to 1-1-1" in text


def test_of_several_sources_the_one_furthest_behind_counts() -> None:
    near = (offset("0-1-9"), offset("0-1-9"))
    far = (offset("0-1-5"), offset("0-1-9", bytesBehind=100, secondsBehind=1))
    assert lag(progress(near, far)).bytes_behind == 100
    assert lag(progress(far, ({"rate": 3}, None))).position == "0-1-5"


def test_a_query_over_other_formats_is_refused() -> None:
    with pytest.raises(ConfigError, match="no mariadb-binlog source"):
        lag(Query(progress(({"logOffset": 1}, {"logOffset": 2}), ("text", None))))


@pytest.mark.parametrize("rate", ["NaN", "Infinity", 0])
def test_a_rate_that_is_no_number_is_zero(rate: float | str) -> None:
    assert lag(progress((offset("0-1-5"), offset("0-1-5")), rate=rate)).rows_per_second == 0.0


def test_offsets_of_this_version_are_recognised() -> None:
    written = SourceOffset.parse(offset("0-1-5")).json()
    assert lag(progress((written, written))).position == "0-1-5"


def test_the_package_loads_the_helper_when_it_is_used() -> None:
    code = (
        "import sys, streaming_source; before = 'streaming_source.sinks.query_lag' in sys.modules;"
        "print(before, streaming_source.lag.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False streaming_source.sinks.query_lag"
    with pytest.raises(AttributeError, match="nothing_of_it"):
        __import__("streaming_source").nothing_of_it  # noqa: B018
