"""The soak's own reader of a relay log: finds what is there, says what is wrong. A judge must be able to object."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from replica.protocol.gtid import Gtid
from replica.relay_writer.writer import RelayWriter
from tests.kit.binlog.primary import Primary
from tests.kit.relay.driving import feed, receive
from tools.proofs.soak.daemon.going_back import DOMAIN
from tools.proofs.soak.daemon.relay_watch import RelayWatch

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def watch(tmp_path: Path) -> RelayWatch:
    for name in ("relay", "copy"):
        (tmp_path / name).mkdir()
    return RelayWatch(tmp_path / "relay", tmp_path / "copy")


def stream(*sequence: int) -> Primary:
    primary = Primary.dump()
    for number in sequence:
        primary.transaction(Gtid(0, 1, number))
    return primary


def write(watch: RelayWatch, wire: bytes) -> None:
    with RelayWriter.open(watch.directory) as relay:
        receive(relay, wire)


def test_whole_groups_are_found_and_copied(watch: RelayWatch) -> None:
    primary = stream(1, 2, 3)
    primary.rotate("bin.000008")
    primary.statement(Gtid(7, 1, 1))
    write(watch, primary.wire())
    watch.poll()
    assert watch.position == {0: 3, 7: 1}
    assert watch.missing(["0-1-1", "0-1-3", "7-1-1", "0-2-1", "0-1-4"]) == ["0-2-1", "0-1-4"]
    copied = sorted(watch.archive.iterdir())
    assert [path.read_bytes() for path in copied] == [(watch.directory / path.name).read_bytes() for path in copied]
    assert len(copied) == 2


def test_half_a_group_is_none_until_it_is_whole(watch: RelayWatch) -> None:
    primary = stream(1, 2)
    wire = primary.wire()
    with RelayWriter.open(watch.directory) as relay:
        receiver = receive(relay, wire[:-10])
        watch.poll()
        assert watch.missing(["0-1-1", "0-1-2"]) == ["0-1-2"]
        feed(receiver, wire[-10:])
        watch.poll()
        assert watch.missing(["0-1-1", "0-1-2"]) == []


def test_a_hole_is_refused(watch: RelayWatch) -> None:
    write(watch, stream(1, 2, 4).wire())
    with pytest.raises(AssertionError, match="0-1-4 follows 2"):
        watch.poll()


def test_a_group_that_comes_twice_is_refused(watch: RelayWatch) -> None:
    write(watch, stream(1, 2, 2).wire())
    with pytest.raises(AssertionError, match="0-1-2 is there twice"):
        watch.poll()


def test_whole_groups_that_are_cut_off_are_missed(watch: RelayWatch) -> None:
    write(watch, stream(1, 2, 3).wire())
    watch.poll()
    watch.check_retained()
    file = watch.directory / "relay.000001"
    os.truncate(file, file.stat().st_size - 1)
    with pytest.raises(AssertionError, match="was cut to"):
        watch.check_retained()


def test_damage_in_a_file_with_a_successor_is_refused(watch: RelayWatch) -> None:
    primary = stream(1, 2, 3)
    primary.rotate("bin.000008")
    primary.transaction(Gtid(0, 1, 4))
    write(watch, primary.wire())
    file = watch.directory / "relay.000001"
    data = bytearray(file.read_bytes())
    data[-30] ^= 1
    file.write_bytes(data)
    with pytest.raises(AssertionError, match="are no whole groups"):
        watch.poll()


def test_a_file_that_retention_takes_stays_in_the_copy(watch: RelayWatch) -> None:
    primary = stream(1)
    primary.rotate("bin.000008")
    primary.transaction(Gtid(0, 1, 2))
    write(watch, primary.wire())
    watch.poll()
    (watch.directory / "relay.000001").unlink()
    watch.check_retained()
    assert watch.removed == 1
    assert len(list(watch.archive.iterdir())) == 2


def test_a_file_that_goes_while_it_is_found_is_found_again_when_it_is_back(
    watch: RelayWatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(watch, stream(1).wire())

    def gone(path: Path, flags: int) -> int:
        raise FileNotFoundError(path)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(os, "open", gone)
        watch.poll()
    assert watch.missing(["0-1-1"]) == ["0-1-1"]
    watch.poll()
    assert watch.missing(["0-1-1"]) == []


def test_a_log_that_goes_on_behind_lost_files_must_do_so_without_a_hole(watch: RelayWatch) -> None:
    write(watch, stream(1, 2).wire())
    primary = stream(3, 4)
    primary.rotate("bin.000008")
    primary.transaction(Gtid(0, 1, 5))
    write(watch, primary.wire())
    watch.poll()
    numbers = sorted(int(path.name[6:12]) for path in watch.archive.iterdir())
    for path in watch.directory.glob("relay.0*"):
        if int(path.name[6:12]) >= numbers[-2]:
            path.unlink()
    with pytest.raises(AssertionError, match="is said to have got to"):
        watch.forget_behind({0: 6})
    watch.forget_behind({0: 2})
    assert watch.position == {0: 2}
    assert watch.missing(["0-1-2", "0-1-3"]) == ["0-1-3"]
    write(watch, stream(3, 4, 5).wire())
    watch.poll()
    assert watch.missing(["0-1-3", "0-1-4", "0-1-5"]) == []
    watch.check_retained()
    copied = sorted(watch.archive.iterdir())
    assert b"".join(path.read_bytes() for path in copied) == b"".join(
        (watch.directory / path.name).read_bytes() for path in copied
    )


def test_a_hole_behind_lost_files_is_refused(watch: RelayWatch) -> None:
    write(watch, stream(1, 2).wire())
    watch.poll()
    for path in watch.directory.glob("relay.0*"):
        path.unlink()
    watch.forget_behind({0: 1})
    write(watch, stream(3).wire())
    with pytest.raises(AssertionError, match="0-1-3 follows 1"):
        watch.poll()


def counted(*groups: tuple[int, int]) -> Primary:
    """Groups of the domain whose sequence numbers go back: the number of each, and what it carries."""
    primary = Primary.dump()
    for number, carried in groups:
        primary.statement(Gtid(DOMAIN, 1, number), text=b"INSERT 'carried=%012d;'" % carried)
    return primary


def test_numbers_that_go_back_are_told_apart_by_what_the_groups_carry(watch: RelayWatch) -> None:
    write(watch, counted((3, 1), (9, 2), (2, 3), (9, 4), (10, 5)).wire())
    watch.poll()
    assert watch.missing(["6-1-9=2", "6-1-2=3", "6-1-9=4", "6-1-10"]) == []
    assert watch.missing(["6-1-9=3", "6-1-2=4", "6-1-10=6", "6-1-11"]) == ["6-1-9=3", "6-1-2=4", "6-1-10=6", "6-1-11"]
    assert (watch.groups, watch.out_of_order) == (5, 1)


@pytest.mark.parametrize("carried", [(1, 2, 2), (1, 3), (2, 1), (1, 2, 1)])
def test_twice_a_hole_or_another_order_is_refused_there_too(watch: RelayWatch, carried: tuple[int, ...]) -> None:
    write(watch, counted(*((9 - number, number) for number in carried)).wire())
    with pytest.raises(AssertionError, match="carries"):
        watch.poll()


def test_a_file_behind_which_numbers_may_come_twice_is_known(watch: RelayWatch) -> None:
    primary = counted((9, 1), (2, 2))
    primary.rotate("bin.000008")
    primary.statement(Gtid(DOMAIN, 1, 10), text=b"INSERT 'carried=000000000003;'")
    primary.rotate("bin.000009")
    primary.statement(Gtid(DOMAIN, 1, 11), text=b"INSERT 'carried=000000000004;'")
    write(watch, primary.wire())
    watch.poll()
    assert [watch.names_one_place(before=number) for number in (1, 2, 3, 4)] == [True, False, True, True]
    watch.forget_behind({DOMAIN: 10})
    assert watch.counted == [(1, 9), (1, 2), (1, 10)]
