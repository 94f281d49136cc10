"""The batch that a commit of a target says it is of; that of others is before all."""

from __future__ import annotations

import json

import pytest

from streaming_source.auditing.mirror_versions import batch_of


@pytest.mark.parametrize(
    ("told", "batch"),
    [
        (json.dumps({"mirror": "m1", "batch": 7, "position": "0-1-4"}), 7),
        (json.dumps({"mirror": "m2", "batch": 7}), -1),
        (json.dumps({"mirror": "m1"}), -1),
        ("a note of someone else", -1),
        ("[1, 2]", -1),
        (None, -1),
    ],
)
def test_the_batch_of_a_commit(told: str | None, batch: int) -> None:
    assert batch_of(told, "m1") == batch
