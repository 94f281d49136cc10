from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from structlog.testing import capture_logs

from replica.daemon.status.lag import CatchingUp
from tests.unit.daemon.records import NOW, record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from replica.daemon.status.record import StatusRecord

FAR = {"seconds": 7200.0, "bytes": 4_000_000}


def said(records: Iterable[StatusRecord]) -> list[dict[str, Any]]:
    """The lines of one daemon that looks at these records, one after the other."""
    left = iter(records)
    with capture_logs() as lines:
        catching_up = CatchingUp(lambda: next(left), structlog.get_logger())
        while True:
            try:
                catching_up.turn()
            except StopIteration:
                return [dict(line) for line in lines]


def later(seconds: float, behind: dict[str, Any], received: int = 0, **changed: Any) -> StatusRecord:
    return record(written_at=NOW + seconds, behind=behind, stream={"received_bytes": received}, **changed)


def test_a_daemon_that_is_never_far_behind_says_so_once() -> None:
    (line,) = said(later(at, {"seconds": 0.5}) for at in range(5))
    assert (line["event"], line["position"]) == ("caught up", "0-1-99,3-1-5")


def test_speed_and_time_left_every_ten_seconds_and_the_end() -> None:
    lines = said(
        [
            later(0, FAR, 1_000_000),
            later(1, FAR, 1_100_000),
            later(10, FAR | {"bytes": 3_000_000}, 2_000_000),
            later(11, {"seconds": 20.0, "bytes": 1}, 5_000_000),
            later(12, {"seconds": 0.0, "bytes": 0}, 5_000_001),
            later(13, {"seconds": 0.0, "bytes": 0}, 5_000_001),
        ]
    )
    assert [line["event"] for line in lines] == ["catching up", "catching up", "caught up"]
    assert (lines[0]["bytes_per_s"], lines[0]["left_s"]) == (None, None)
    assert (lines[1]["bytes_per_s"], lines[1]["left_s"], lines[1]["behind_s"]) == (100_000, 30, 7200)


def test_each_time_that_it_falls_behind_is_told() -> None:
    near = {"seconds": 0.0}
    events = [line["event"] for line in said(later(20 * at, one) for at, one in enumerate((near, FAR, near, near)))]
    assert events == ["caught up", "catching up", "caught up"]


def test_what_is_not_known_is_not_said() -> None:
    assert said([later(0, {"seconds": None}), later(1, FAR, state="connecting")]) == []
    (line,) = said([later(0, FAR | {"bytes": None})])
    assert (line["behind_bytes"], line["left_s"]) == (None, None)
