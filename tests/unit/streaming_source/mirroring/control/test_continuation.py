"""A batch that comes to targets: the next one, the last one, or of another moment than they are."""

from __future__ import annotations

import pytest

from replica.errors import ConfigError
from replica.protocol.gtid import GtidPosition
from streaming_source.mirroring.control import continuation
from streaming_source.mirroring.control.continuation import FencingCheck, check_fencing, is_applied
from streaming_source.offsets.offset import SourceOffset
from tests.unit.streaming_source.mirroring.reading.test_rules import row

ROWS = [
    row(batch=4, position="0-1-40"),
    row(batch=2, position="0-1-20", state="failed"),
    row(batch=1, position="0-1-10", waits_for="0-1-10"),
]


def check(number: int, position: str, rows: list = ROWS) -> bool:  # type: ignore[type-arg]
    at = GtidPosition.parse(position)
    return is_applied(rows, number, SourceOffset(at, at), "/c")


def test_the_next_batch_is_to_be_brought_in_and_the_last_one_is_there() -> None:
    assert not check(5, "0-1-50")
    assert check(4, "0-1-40")


def test_where_no_target_goes_on_nothing_can_be_missing() -> None:
    assert not check(9, "0-1-90", [])
    assert not check(9, "0-1-90", ROWS[1:])


@pytest.mark.parametrize(("number", "position"), [(3, "0-1-50"), (4, "0-1-50")])
def test_an_older_checkpoint_is_refused(number: int, position: str) -> None:
    with pytest.raises(ConfigError, match=r"the checkpoint /c is older than the targets: .* at batch 4") as told:
        check(number, position)
    assert "drop the control table" in str(told.value)


def test_older_targets_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"the targets are older than the checkpoint /c: .* batch 4, .* batch 6"):
        check(6, "0-1-60")


def test_a_control_table_that_another_run_writes_is_refused() -> None:
    check_fencing(ROWS, list(reversed(ROWS)), "lake.mirror_control")
    for there in ([row(batch=5, position="0-1-50"), *ROWS[1:]], [row(batch=4, position="0-1-41"), *ROWS[1:]], []):
        with pytest.raises(
            ConfigError, match=r"another run of this mirror writes lake.mirror_control .* wrote batch 4"
        ):
            check_fencing(ROWS, there, "lake.mirror_control")


def test_a_mirror_looks_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(continuation.time, "monotonic", lambda: now)
    alone = FencingCheck()
    now += 59
    assert not alone.due()
    now += 1
    assert alone.due()
    assert not alone.due()
