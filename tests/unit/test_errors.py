"""How an error reads: its message is a sentence of its own before the advice."""

from __future__ import annotations

import pytest

from replica.errors import ProtocolError, ReplicaError


@pytest.mark.parametrize(
    ("message", "hint", "text"),
    [
        ("It failed.", "Try again.", "It failed. Try again."),
        ("It failed", "Try again.", "It failed. Try again."),
        ("these are missing:", "all.", "these are missing: all."),
        ("It failed", "", "It failed"),
        ("The server said: it was purged..", "Begin again.", "The server said: it was purged. Begin again."),
        ("The server said: it was purged..", "", "The server said: it was purged."),
        ("It goes on...", "", "It goes on..."),
    ],
)
def test_message_and_advice_are_two_sentences(message: str, hint: str, text: str) -> None:
    assert str(ReplicaError(message, hint=hint)) == text


def test_also_behind_an_offset() -> None:
    assert str(ProtocolError("It ends", offset=4, hint="Look.")) == "It ends (at offset 4). Look."
