"""started(): how long it waits, by what Spark says of a query, and which queries it starts again."""

from __future__ import annotations

import logging
import threading
from typing import Any, cast

import pytest

from streaming_source.sinks import queries as query_start
from streaming_source.sinks.queries import TRIES, started, unlogged_calls

TOO_SLOW = (
    "[STREAM_FAILED] Query [id = 1] terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
)


class Starting:
    """A query that says one thing after the other, and then has ended."""

    def __init__(self, *messages: str, error: str | None = None) -> None:
        self.messages = list(messages)
        self.error = error

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        return bool(self.messages)

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.messages.pop(0), "isDataAvailable": False, "isTriggerActive": False}

    def exception(self) -> Exception | None:
        return None if self.error is None else RuntimeError(self.error)


class Writer:
    """A `writeStream` whose starts give these queries."""

    def __init__(self, *queries: Starting) -> None:
        self.queries = list(queries)

    def start(self) -> Starting:
        return self.queries.pop(0)


@pytest.mark.parametrize("left", [["Waiting for data to arrive"], []])
def test_it_waits_for_the_source_process_or_the_end(left: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query_start, "POLL_S", 0.0)
    messages = [
        "Initializing sources",
        "Initializing sources",
        "Initializing StreamExecution",
        "Getting offsets from x",
    ]
    query = Starting(*(messages + left if left else messages[:3]))
    assert started(cast("Any", query)) is query
    assert query.messages == left


@pytest.mark.parametrize(
    ("slow", "then", "said"),
    [(0, Starting("Waiting for data"), 0), (2, Starting("Waiting for data"), 2), (1, Starting(error="Disk full"), 1)],
)
def test_a_writer_is_started_again_where_spark_gave_up(
    slow: int, then: Starting, said: int, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(*(Starting(error=TOO_SLOW) for _ in range(slow)), then)
    assert started(cast("Any", writer)) is then
    assert writer.queries == []
    assert [record.getMessage()[-7:] for record in caplog.records] == [
        f"({n} of {TRIES})"[-7:] for n in range(2, said + 2)
    ]


def test_a_query_that_never_starts_is_given_back_with_its_error() -> None:
    queries = [Starting(error=TOO_SLOW) for _ in range(TRIES)]
    writer = Writer(*queries)
    assert started(cast("Any", writer)) is queries[-1]


def test_a_query_that_someone_else_started_is_only_waited_for() -> None:
    query = Starting(error=TOO_SLOW)
    assert started(cast("Any", query)) is query


@pytest.mark.parametrize("name", ["py4j.clientserver", "py4j.java_gateway"])
def test_calls_of_java_with_secrets_are_not_in_the_log_and_all_others_are(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire = logging.getLogger(name)
    with caplog.at_level(logging.DEBUG, logger=name):
        with unlogged_calls():
            wire.debug("secret")
            wire.warning("the connection is broken")
            other = threading.Thread(target=wire.debug, args=("another thread",))
            other.start()
            other.join()
        wire.debug("later")
    assert caplog.messages == ["the connection is broken", "another thread", "later"]
