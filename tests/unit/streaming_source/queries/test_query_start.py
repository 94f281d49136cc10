"""started(): how long it waits, by what Spark says of a query."""

from __future__ import annotations

from typing import Any, cast

import pytest

from streaming_source.queries import query_start
from streaming_source.queries.query_start import started


class Starting:
    """A query that says one thing after the other, and then has ended."""

    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)

    @property
    def isActive(self) -> bool:  # noqa: N802  (Spark's name)
        return bool(self.messages)

    @property
    def status(self) -> dict[str, Any]:
        return {"message": self.messages.pop(0), "isDataAvailable": False, "isTriggerActive": False}


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
