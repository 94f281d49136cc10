"""Names of event types, known and unknown."""

from __future__ import annotations

from replica.protocol.constants import EventType, event_name


def test_event_name() -> None:
    assert event_name(EventType.GTID) == "GTID (162)"
    assert event_name(200) == "type 200"
