"""Which places of the binlog are accepted as L, against a relay log whose groups are known."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from replica.protocol.events.transaction_events import XaId
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition
from replica.relay_log.location import relay_numbers
from replica.relay_log.log import RelayLog
from replica.relay_writer.writer import RelayWriter
from replica.snapshot.watermark.primary import (
    MAX_AHEAD,
    MAX_PAIRS,
    ROWLESS,
    TEN_SECONDS,
    PrimaryWatermark,
    ServerStatus,
)
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import receive

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from replica.relay_log.location import RelayHead

T0 = 1_700_000_000


@dataclass
class Bed:
    """A primary whose binlog goes into a relay log, and what a poll of it would read."""

    directory: Path
    primary: Primary = field(default_factory=lambda: Primary(timestamp=T0))
    ends: list[BinlogPosition] = field(default_factory=list)
    sequence: int = 0
    max_file_bytes: int = 1 << 20

    def __post_init__(self) -> None:
        self.primary.open_file("bin.000001")
        self.log = RelayLog(self.directory)
        self.pairs = PrimaryWatermark(self.log)

    def commit(self, groups: int = 1, *, xa: str = "", name: str = "x") -> Bed:
        for _ in range(groups):
            self.sequence += 1
            gtid = Gtid(0, 1, self.sequence)
            match xa:
                case "prepare":
                    self.primary.xa_prepare(name, gtid)
                case "commit" | "rollback":
                    self.primary.xa_end(name, xa.upper(), gtid)
                case _:
                    self.primary.transaction(gtid)
            self.ends.append(BinlogPosition(self.primary.file, self.primary.position))
        return self

    def rotate(self, name: str) -> BinlogPosition:
        """The place at which the new file begins, behind its head."""
        self.primary.checkpoint()
        self.primary.rotate(name)
        self.primary.checkpoint()
        return BinlogPosition(name, self.primary.position)

    def send(self) -> Bed:
        with RelayWriter.open(self.directory, max_file_bytes=self.max_file_bytes) as relay:
            receive(relay, self.primary.wire())
        self.primary.connect()
        return self

    def look(
        self,
        place: BinlogPosition | None,
        now_s: float,
        *,
        waiting: int = 0,
        position: str | None = None,
        time_s: float = T0,
        before: RelayHead | None = None,
        prepared: Sequence[str] = (),
        settled: bool = False,
    ) -> RelayHead | None:
        known = GtidPosition.parse(f"0-1-{self.sequence}" if position is None else position)
        listed = frozenset(XaId(1, name.encode(), b"") for name in prepared)
        status = ServerStatus(place, waiting, known, time_s, listed, settled)
        self.pairs.update(status, before or self.log.head(), now_s)
        return self.pairs.watermark(now_s)

    def busy(self, place: BinlogPosition | None, now_s: float) -> RelayHead | None:
        """The same, while the server has more that has not come yet: it is never at rest."""
        return self.look(place, now_s, position=f"0-1-{self.sequence + 1}")


@pytest.fixture
def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path / "relay")


def place_of(lower: RelayHead | None) -> BinlogPosition:
    assert lower is not None
    return lower.primary


def test_a_place_counts_once_it_is_old_enough(bed: Bed) -> None:
    bed.commit(3).send()
    for second in range(10):
        assert bed.busy(bed.ends[1], second) is None
        assert f"{second} s old and has to be 10 s old" in bed.pairs.reason
    lower = bed.busy(bed.ends[2], TEN_SECONDS)
    assert place_of(lower) == bed.ends[1]
    assert lower is not None
    assert str(lower.position) == "0-1-2"
    assert place_of(bed.pairs.watermark(2 * TEN_SECONDS - 0.1)) == bed.ends[1]
    assert place_of(bed.pairs.watermark(2 * TEN_SECONDS)) == bed.ends[2]


def test_polled_every_second_it_is_the_place_of_ten_seconds_ago(bed: Bed) -> None:
    bed.commit(40).send()
    for second in range(40):
        lower = bed.busy(bed.ends[second], second)
        if second >= 10:
            assert place_of(lower) == bed.ends[second - 10]
        else:
            assert lower is None


def test_what_is_no_end_of_a_group_is_not_accepted(bed: Bed) -> None:
    bed.commit(3)
    begin = bed.rotate("bin.000002")
    bed.commit(3).send()
    torn = [BinlogPosition("bin.000002", end.position) for end in bed.ends[:3]]
    wrong = [
        None,
        begin,
        BinlogPosition("bin.000002", 4),
        BinlogPosition("bin.000002", 256),
        BinlogPosition("bin.000003", 4),
        BinlogPosition("bin.000003", bed.ends[0].position),
        BinlogPosition("", 0),
        *[BinlogPosition(one.file, one.position - 1) for one in bed.ends],
        *[BinlogPosition(one.file, one.position + 1) for one in bed.ends],
        *[one for one in torn if one not in bed.ends],
    ]
    for second, place in enumerate(wrong):
        assert bed.busy(place, second) is None
        assert str(place or "no place") in bed.pairs.reason
    assert bed.pairs.watermark(1000) is None
    for end in bed.ends:
        other = PrimaryWatermark(bed.log)
        other.update(ServerStatus(end, 0, GtidPosition.parse("0-1-99"), T0), bed.log.head(), 0)
        assert place_of(other.watermark(TEN_SECONDS)) == end


def test_a_place_that_is_lower_than_the_last_is_not_accepted(bed: Bed) -> None:
    bed.commit(5).send()
    for second in range(30):
        bed.busy(bed.ends[3 if second < 5 else 1], second)
    assert place_of(bed.pairs.watermark(30)) == bed.ends[3]
    assert place_of(bed.busy(bed.ends[4], 31)) == bed.ends[3]


def test_a_place_that_has_not_been_received_is_not_accepted(bed: Bed) -> None:
    bed.commit(2).send().commit(2)
    for second in range(20):
        assert bed.busy(bed.ends[3], second) is None
    bed.send()
    assert place_of(bed.busy(bed.ends[3], 20)) == bed.ends[3], "it is of 20 s ago"


def test_a_server_that_is_always_ahead_of_the_relay_log(bed: Bed) -> None:
    bed.commit(3).send()
    for second in range(100):
        lower = bed.commit().busy(bed.ends[-1], second)
        if second >= 12:
            assert place_of(lower) == bed.ends[-11]
        bed.send()


def test_a_torn_pair_is_not_accepted_when_the_binlog_reaches_it(bed: Bed) -> None:
    bed.commit(30)
    old = bed.ends[-1]
    bed.rotate("bin.000002")
    bed.commit().send()
    while bed.primary.position < old.position:
        bed.commit()
    torn = next(end for end in bed.ends if end.file == "bin.000002" and end.position >= old.position)
    assert bed.look(torn, 0, position="0-1-31") is None
    bed.send()
    assert bed.busy(None, 1) is None
    assert bed.pairs.watermark(100) is None
    assert bed.busy(torn, 101) is None
    assert place_of(bed.pairs.watermark(111)) == torn, "now it is there"


def test_places_that_never_come_are_bounded(bed: Bed) -> None:
    bed.commit(300).send()
    for second in range(150):
        bed.busy(BinlogPosition("bin.000009", 500 + second), second)
        assert len(bed.pairs._unreached) <= MAX_AHEAD
        bed.busy(bed.ends[second], second)
    assert place_of(bed.pairs.watermark(150)) == bed.ends[140]


def test_places_where_relay_files_end_count_in_the_middle_of_the_primarys_file(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "relay", max_file_bytes=1500)
    bed.commit(30)
    begin = bed.rotate("bin.000002")
    bed.commit(30).send()
    assert len(relay_numbers(bed.directory)) > 5
    for end in bed.ends:
        pairs = PrimaryWatermark(bed.log)
        pairs.update(ServerStatus(end, 0, GtidPosition.parse("0-1-99"), T0), bed.log.head(), 0)
        assert place_of(pairs.watermark(TEN_SECONDS)) == end
    assert bed.busy(begin, 0) is None
    assert bed.pairs.watermark(TEN_SECONDS) is None


def test_the_beginning_of_the_relay_log_is_no_known_end(bed: Bed) -> None:
    bed.commit(4).send()
    start = BinlogPosition("bin.000001", 256)
    assert bed.busy(start, 0) is None
    assert bed.pairs.watermark(TEN_SECONDS) is None


def test_a_server_at_rest_needs_no_waiting(bed: Bed) -> None:
    bed.commit(3).send()
    assert bed.look(bed.ends[-1], 0, time_s=T0 + TEN_SECONDS) is None
    assert place_of(bed.look(bed.ends[-1], 1, time_s=T0 + TEN_SECONDS + 1)) == bed.ends[-1]


@pytest.mark.parametrize("reason", ["waiting", "more in the binlog", "an earlier place", "no place", "a young commit"])
def test_a_server_that_is_not_at_rest(bed: Bed, reason: str) -> None:
    bed.commit(3).send()
    late = T0 + 1000
    match reason:
        case "waiting":
            found = bed.look(bed.ends[-1], 0, time_s=late, waiting=1)
        case "more in the binlog":
            found = bed.look(bed.ends[-1], 0, time_s=late, position="0-1-4")
        case "an earlier place":
            found = bed.look(bed.ends[-2], 0, time_s=late)
        case "no place":
            found = bed.look(None, 0, time_s=late)
        case _:
            found = bed.look(bed.ends[-1], 0, time_s=T0)
    assert found is None
    assert bed.pairs.reason


def test_where_no_commit_can_be_under_way_the_end_of_the_log_is_committed_whatever_the_pair_says(bed: Bed) -> None:
    bed.commit(3).send()
    before = bed.log.head()
    bed.rotate("bin.000002")
    bed.commit().send()
    torn = BinlogPosition("bin.000002", bed.ends[0].position)
    assert place_of(bed.look(torn, 0, settled=True, before=before)) == bed.ends[2], "what came since may not be"
    assert place_of(bed.look(None, 0, settled=True)) == bed.ends[3]


def test_where_no_commit_can_be_under_way_a_log_without_a_group_is_committed(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "relay")
    with RelayWriter.open(bed.directory, start=GtidPosition.parse("0-1-7")):
        pass
    assert bed.look(BinlogPosition("bin.000001", 811), 0, position="0-1-7") is None
    lower = bed.look(BinlogPosition("bin.000001", 811), 1, position="0-1-7", settled=True)
    assert lower is not None
    assert str(lower.position) == "0-1-7"


def test_where_no_commit_can_be_under_way_no_window_begins_before_rows_that_the_log_has_not(bed: Bed) -> None:
    bed.commit(2)
    bed.commit(xa="commit").send()
    assert bed.look(None, 0, settled=True, prepared=("x",)) is None
    assert bed.pairs.reason == ROWLESS
    assert place_of(bed.look(None, 0, settled=True)) == bed.ends[2]


def test_at_the_beginning_of_a_file_a_server_has_to_be_at_rest_for_ten_seconds(bed: Bed) -> None:
    bed.commit(3)
    begin = bed.rotate("bin.000002")
    bed.send()
    late = T0 + 1000
    for second in range(10):
        assert bed.look(begin, second, time_s=late) is None
    assert bed.look(begin, 10, time_s=late, waiting=1) is None, "a commit waits: it begins again"
    assert bed.look(begin, 11, time_s=late) is None
    assert bed.look(begin, 20, time_s=late) is None
    assert place_of(bed.look(begin, 21, time_s=late)) == bed.ends[-1]


def test_what_comes_after_the_server_was_asked_is_not_taken_for_committed(bed: Bed) -> None:
    bed.commit(3).send()
    before, place, late = bed.log.head(), bed.ends[-1], T0 + 1000
    bed.rotate("bin.000002")
    bed.commit().send()
    for second in range(20):
        lower = bed.look(place, second, position="0-1-3", time_s=late, before=before)
        assert place_of(lower) == place
    assert place_of(bed.look(bed.ends[-1], 20, position="0-1-4", time_s=late)) == bed.ends[-1]


def test_the_first_transaction_of_a_server_is_not_taken_for_committed(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "relay")
    with RelayWriter.open(bed.directory, start=GtidPosition()):
        pass
    before = bed.log.head()
    bed.commit().send()
    lower = bed.look(BinlogPosition("bin.000001", 256), 0, position="", before=before)
    assert lower is not None
    assert not lower.position


def test_a_server_without_a_group_is_at_rest(tmp_path: Path) -> None:
    bed = Bed(tmp_path / "relay")
    with RelayWriter.open(bed.directory, start=GtidPosition()):
        pass
    head = bed.look(BinlogPosition("bin.000001", 329), 0, position="")
    assert head is not None
    assert not head.position


def test_without_a_relay_log_there_is_no_place(bed: Bed) -> None:
    assert bed.look(BinlogPosition("bin.000001", 329), 0, position="") is None
    assert bed.pairs.reason == "the relay log has not begun"


def test_it_goes_back_before_xa_commits_that_the_engine_is_not_done_with(bed: Bed) -> None:
    bed.commit(2).commit(xa="prepare").send()
    late = T0 + 500
    lower = bed.look(bed.ends[-1], 0, time_s=late, prepared="x")
    assert place_of(lower) == bed.ends[2], "a prepared one waits for nothing"
    bed.commit(2).commit(xa="commit").commit(xa="prepare", name="y").commit(2).commit(xa="commit", name="y").send()
    assert place_of(bed.look(bed.ends[-1], 20, time_s=late, prepared="xy")) == bed.ends[4], "where XA COMMIT x begins"
    assert place_of(bed.look(bed.ends[-1], 9000, time_s=late, prepared="xy")) == bed.ends[4], "however long it takes"
    assert place_of(bed.look(bed.ends[-1], 9001, time_s=late, prepared="y")) == bed.ends[8]
    assert place_of(bed.look(bed.ends[-1], 9002, time_s=late)) == bed.ends[-1]


def test_an_xa_id_that_is_used_again_is_another_transactions(bed: Bed) -> None:
    bed.commit(2).commit(xa="prepare").commit(xa="commit").send()
    late = T0 + 500
    assert place_of(bed.look(bed.ends[-1], 0, time_s=late, prepared="x")) == bed.ends[2]
    bed.commit(xa="prepare").commit().send()
    assert place_of(bed.look(bed.ends[-1], 1, time_s=late, prepared="x")) == bed.ends[-1]


def test_a_pair_does_not_count_before_the_xa_commits_up_to_it_were_looked_for(bed: Bed) -> None:
    bed.commit(xa="prepare").commit().send()
    before = bed.log.head()
    bed.commit(xa="commit").commit().send()
    assert bed.look(bed.ends[-1], 0, position="0-1-9", before=before, prepared="x") is None
    kept = bed.pairs.keep_from()
    assert kept is not None
    assert bed.pairs.watermark(2 * TEN_SECONDS) is None, "the connection is lost: no one knows"
    assert bed.look(None, 21, position="0-1-9", prepared="x") is not None
    found = bed.pairs.watermark(22)
    assert found is not None
    assert str(found.position) == "0-1-2"
    assert kept <= found.location


def test_it_does_not_go_back_before_an_xa_commit_whose_rows_the_log_has_not(bed: Bed) -> None:
    bed.commit(2).commit(xa="prepare", name="y").send()
    for second in range(30):
        if second == 2:
            bed.commit(xa="commit").send()  # prepared before the log begins
        if second == 5:
            bed.commit(xa="commit", name="y").send()
        lower = bed.busy(bed.ends[-1], second)
        assert (lower is None) == (second < 12)
        assert lower is None or place_of(lower) >= bed.ends[3]
        if 10 <= second < 12:
            assert bed.pairs.reason == ROWLESS


def test_an_xa_commit_without_rows_that_hangs_is_waited_for(bed: Bed) -> None:
    bed.commit(2).commit(xa="commit").commit(2).send()
    late = T0 + 500
    assert bed.look(bed.ends[-1], 0, time_s=late, prepared="x") is None
    assert bed.look(bed.ends[-1], 900, time_s=late, prepared="x") is None
    assert place_of(bed.look(bed.ends[-1], 901, time_s=late)) == bed.ends[-1]


def test_an_xa_rollback_waits_for_nothing(bed: Bed) -> None:
    bed.commit(2).commit(xa="prepare").commit(xa="rollback").commit().send()
    assert place_of(bed.look(bed.ends[-1], 0, time_s=T0 + 100)) == bed.ends[-1]


def test_a_relay_log_that_was_made_again_is_known_anew(bed: Bed) -> None:
    bed.commit(50).send()
    assert place_of(bed.look(bed.ends[-1], 0, time_s=T0 + 100)) == bed.ends[-1]
    shutil.rmtree(bed.directory)
    again = Bed(bed.directory)
    again.commit(2).send()
    bed.ends, bed.sequence = again.ends, 2
    assert bed.busy(again.ends[-1], 1) is None
    assert place_of(bed.busy(again.ends[-1], 11)) == again.ends[-1]


def test_pairs_in_memory_are_bounded(bed: Bed) -> None:
    bed.commit(MAX_PAIRS + 20).send()
    for end in bed.ends:
        bed.busy(end, 0)
    assert place_of(bed.pairs.watermark(TEN_SECONDS)) == bed.ends[MAX_PAIRS - 1]
    assert place_of(bed.busy(bed.ends[-1], 2 * TEN_SECONDS)) == bed.ends[MAX_PAIRS - 1]
    assert place_of(bed.pairs.watermark(3 * TEN_SECONDS)) == bed.ends[-1]


def test_no_later_place_lies_before_what_is_kept(bed: Bed) -> None:
    bed.commit(2).commit(xa="prepare").send()
    assert bed.pairs.keep_from() is None
    kept = None
    for second in range(100):
        bed.commit(xa="commit").commit(xa="prepare") if second == 20 else bed.commit()
        bed.send()
        lower = bed.busy(bed.ends[-1], second)
        assert kept is None or lower is None or lower.location >= kept
        kept = bed.pairs.keep_from()
        assert kept is not None
        assert lower is None or kept <= lower.location
