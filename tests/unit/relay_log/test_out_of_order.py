"""Sequence numbers that go back within a domain: where the kernel stops, and what the relay log remembers of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from replica.errors import OutOfOrderGtidError, RelayError
from replica.protocol.gtid import BinlogPosition, Gtid, GtidPosition, ambiguous
from replica.relay_log.files.index import last_entry
from replica.relay_log.groups.order import IN_ORDER, ORDER_NAME, Begun, LogOrder, read_order, write_order
from replica.relay_log.location import RelayLocation, relay_numbers
from replica.relay_log.log import RelayLog
from replica.relay_writer import recovery
from replica.relay_writer.receiver import Receiver
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import feed, stored
from tests.kit.relay.plain_reading import read_plainly

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from replica.relay_log.files.index import IndexEntry

TOP = (1 << 64) - 1


def gtids_at_random(seed: int, count: int = 60) -> list[Gtid]:
    """Three domains, two servers, numbers that mostly grow, some beyond 2^63."""
    chance = random.Random(seed)
    last = {0: 0, 1: (1 << 63) - 5, 7: 0}
    gtids = []
    for _ in range(count):
        domain = chance.choice(list(last))
        step = chance.randint(1, 3) if chance.random() < 0.9 else -chance.randint(0, 4)
        last[domain] = max(1, last[domain] + step)
        gtids.append(Gtid(domain, chance.choice((1, 2)), last[domain]))
    return gtids


def in_order(gtids: Iterable[Gtid]) -> list[Gtid]:
    """The twin of the kernel's rule: those before the first that is not above the last of its domain."""
    last: dict[int, int] = {}
    kept = []
    for gtid in gtids:
        if gtid.seq_no <= last.get(gtid.domain_id, -1):
            break
        last[gtid.domain_id] = gtid.seq_no
        kept.append(gtid)
    return kept


def went_back(gtids: Iterable[Gtid]) -> dict[int, int]:
    """The twin of what is remembered: in each domain the highest number that stood before one that went back."""
    last: dict[int, int] = {}
    highest: dict[int, int] = {}
    for gtid in gtids:
        before = last.get(gtid.domain_id, -1)
        if gtid.seq_no <= before:
            highest[gtid.domain_id] = max(highest.get(gtid.domain_id, 0), before)
        last[gtid.domain_id] = gtid.seq_no
    return highest


def wire_of(gtids: Iterable[Gtid], *, semi_sync: bool = False) -> bytes:
    primary = Primary.dump()
    for number, gtid in enumerate(gtids):
        primary.transaction(gtid, (20 + number * 37 % 900,))
    return primary.wire(semi_sync=semi_sync, ack=semi_sync)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("sizes", [(1 << 30,), (1,), (7, 300, 19, 4000), (65,)], ids=str)
def test_strict_stops_before_the_group_whatever_the_pieces(tmp_path: Path, seed: int, sizes: tuple[int, ...]) -> None:
    gtids = gtids_at_random(seed)
    kept, semi_sync = in_order(gtids), bool(seed % 2)
    wire = wire_of(gtids, semi_sync=semi_sync)
    with RelayWriter.open(tmp_path) as relay:
        receiver = Receiver(relay, semi_sync=semi_sync, strict=True)
        acks: list[BinlogPosition | None] = []
        if len(kept) == len(gtids):
            feed(receiver, wire, sizes)
        else:
            refused = gtids[len(kept)]
            with pytest.raises(OutOfOrderGtidError) as caught:
                feed(receiver, wire, sizes, acknowledge=lambda: acks.append(receiver.take_ack()))
            before = [gtid for gtid in kept if gtid.domain_id == refused.domain_id][-1]
            assert f"{refused} at bin.000007:" in caught.value.message
            assert f"comes after {before}" in caught.value.message
            assert "gtid_strict_mode=false" in caught.value.hint
        assert relay.position == GtidPosition.last_of(kept)
        last_end = relay.head.primary
        assert all(ack is None or ack <= last_end for ack in acks), "nothing of it is acknowledged"
        assert read_order(tmp_path) == IN_ORDER
    assert [gtid for ends in stored(tmp_path)[1] for _, gtid, _, _ in ends] == kept


def test_two_servers_of_one_domain_have_one_order() -> None:
    # mariadbd: rpl_binlog_state::check_strict_sequence looks at the last number of the domain, whoever wrote it.
    assert in_order([Gtid(0, 1, 9), Gtid(0, 2, 5)]) == [Gtid(0, 1, 9)]


@pytest.mark.parametrize("seed", range(12))
def test_without_strict_all_is_kept_and_what_went_back_is_remembered(tmp_path: Path, seed: int) -> None:
    gtids = gtids_at_random(seed)
    wire = wire_of(gtids)
    with RelayWriter.open(tmp_path, max_file_bytes=9000) as relay:
        feed(Receiver(relay, semi_sync=False), wire, (5000,))
        assert relay.position == read_plainly(wire).position
        assert dict(relay.highest) == went_back(gtids) == dict(read_order(tmp_path).highest)
    assert [gtid for ends in stored(tmp_path)[1] for _, gtid, _, _ in ends] == gtids
    with RelayWriter.open(tmp_path) as relay:
        assert dict(relay.highest) == went_back(gtids)
    (tmp_path / ORDER_NAME).unlink(missing_ok=True)
    with RelayWriter.open(tmp_path) as relay:
        assert dict(relay.highest) == went_back(gtids), "found again in the files that are marked"
        assert RelayLog(tmp_path).order().highest == went_back(gtids)


def test_it_is_remembered_when_the_files_that_tell_were_purged(tmp_path: Path) -> None:
    gtids = [*(Gtid(0, 1, n) for n in range(1, 10)), *(Gtid(0, 1, n) for n in range(2, 8))]
    with RelayWriter.open(tmp_path, max_file_bytes=1500) as relay:
        feed(Receiver(relay, semi_sync=False), wire_of(gtids))
        assert ambiguous(relay.position, relay.highest) == (Gtid(0, 1, 7),)
    log = RelayLog(tmp_path)
    head = log.head()
    assert head is not None
    log.purge_before(head.location)
    with RelayWriter.open(tmp_path) as relay:
        assert ambiguous(relay.position, relay.highest) == (Gtid(0, 1, 7),)


def test_a_log_that_only_grew_is_opened_without_a_look_at_each_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gtids = [Gtid(0, 1, n) for n in range(1, 60)]
    with RelayWriter.open(tmp_path, max_file_bytes=1500) as relay:
        feed(Receiver(relay, semi_sync=False), wire_of(gtids))
    looked: set[str] = set()

    def look(path: Path) -> IndexEntry | None:
        looked.add(path.name)
        return last_entry(path)

    monkeypatch.setattr(recovery, "last_entry", look)
    with RelayWriter.open(tmp_path) as relay:
        assert not relay.highest
    assert len(relay_numbers(tmp_path)) > 5
    assert len(looked) == 1, "the newest one answers for all"


def test_a_killed_writer_loses_no_knowledge(tmp_path: Path) -> None:
    relay = RelayWriter.open(tmp_path)
    feed(Receiver(relay, semi_sync=False), wire_of([Gtid(0, 1, 9), Gtid(0, 1, 2)]))
    (tmp_path / ORDER_NAME).unlink()  # as if the power had failed between the group and the file
    relay._lock.close()  # as the end of its process does
    with RelayWriter.open(tmp_path) as after:
        assert after.highest == {0: 9}
    assert read_order(tmp_path).highest == {0: 9}


def test_the_place_where_a_log_was_begun_is_known_by_the_primarys_words(tmp_path: Path) -> None:
    # The end of one binlog file is the beginning of the next: a dump that began at the one is of the other.
    position, place = GtidPosition.parse("0-1-3"), BinlogPosition("bin.000006", 777)
    with RelayWriter.open(tmp_path) as relay:
        relay.restart(position, highest={0: 9}, place=place)
        log = RelayLog(tmp_path)
        assert log.locate(position, place) == RelayLocation(1, 0)
        feed(Receiver(relay, semi_sync=False), wire_of([Gtid(0, 1, 4), Gtid(0, 1, 3), Gtid(0, 1, 4)]))
        first, again = log.locate(position, place), log.cut(RelayLocation(1, 0), RelayLocation(9, 0), 700)
        assert first is not None
        assert first < again.location
        assert log.locate(position, BinlogPosition("bin.000006", 778)) is None
        relay.restart(position)
        assert read_order(tmp_path) == IN_ORDER


def test_where_the_first_one_that_went_back_lies(tmp_path: Path) -> None:
    for seed in range(8):
        gtids = gtids_at_random(seed)
        folder = tmp_path / str(seed)
        folder.mkdir()
        with RelayWriter.open(folder, max_file_bytes=6000) as relay:
            feed(Receiver(relay, semi_sync=False), wire_of(gtids))
        log = RelayLog(folder)
        head = log.head()
        assert head is not None
        start, at = RelayLocation(1, 0), 0
        while at < len(gtids):
            found = log.first_out_of_order(start, head.location)
            last = GtidPosition.last_of(gtids[:at])
            want = next((n for n in range(at, len(gtids)) if _back(gtids[n], GtidPosition.last_of(gtids[:n]))), None)
            if want is None:
                assert found is None
                break
            assert found is not None
            assert found[0].gtid == gtids[want]
            assert found[0].before.position == GtidPosition.last_of(gtids[:want]) != last or want == at
            start, at = found[0].after.location, want + 1


def _back(gtid: Gtid, position: GtidPosition) -> bool:
    last = position.get(gtid.domain_id)
    return last is not None and gtid.seq_no <= last.seq_no


def test_the_file(tmp_path: Path) -> None:
    assert read_order(tmp_path) == IN_ORDER
    order = LogOrder({0: 9, 7: TOP}, Begun(3, BinlogPosition("bin.000001", 4)))
    write_order(tmp_path, order)
    assert read_order(tmp_path) == order
    for damaged in (b"", b"{}", b"[]", b'{"version": 2}', b'{"version": 1, "highest": 3, "begun": 1}'):
        (tmp_path / ORDER_NAME).write_bytes(damaged)
        with pytest.raises(RelayError, match=ORDER_NAME):
            read_order(tmp_path)
    write_order(tmp_path, IN_ORDER)
    assert not (tmp_path / ORDER_NAME).exists()
