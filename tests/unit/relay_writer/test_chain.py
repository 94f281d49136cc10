from __future__ import annotations

import contextlib
import errno
import os
import threading
from pathlib import Path

import pytest

from replica.relay_log.files.index import SEALED_FLAG, IndexEntry, last_entry
from replica.relay_log.location import index_path, relay_numbers, relay_path
from replica.relay_writer.chain import MAX_WAITING, FileChain, Sealer

HEAD = b"the head of a file"


def entry(end: int) -> IndexEntry:
    return IndexEntry(end, 4, 5, SEALED_FLAG, 0, b"")


def descriptors(folder: Path) -> list[str]:
    """The open files of a folder; what else this process has open comes and goes with other tests."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the list's own, and those that are closed meanwhile
            found.append(str(one.readlink()))
    return [path for path in found if path.startswith(f"{folder}/")]


def test_files_follow_each_other_and_empty_ones_leave_no_gap(tmp_path: Path) -> None:
    chain = FileChain(tmp_path, 7)
    for size in (10, 0, 0, 20):
        file = chain.begin(HEAD)
        file.append(memoryview(bytes(size)), len(HEAD))
        chain.end(entry(len(HEAD) + size))
    chain.end(entry(0))
    chain.finish()
    assert relay_numbers(tmp_path) == [7, 8]
    assert [relay_path(tmp_path, n).stat().st_size for n in (7, 8)] == [28, 38]
    assert last_entry(index_path(tmp_path, 8)) == entry(38).judged(plain=True, before=True)
    assert chain.sealed.total() == (2, 66)
    chain.remove_all()
    assert relay_numbers(tmp_path) == []
    assert chain.sealed.total() == (0, 0)
    assert chain.next_number == 9
    chain.close()


@pytest.mark.parametrize("call", ["open", "write"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_file_that_cannot_be_made_holds_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: int
) -> None:
    chain = FileChain(tmp_path, 1)
    real, left = getattr(os, call), [after]

    def full(*given: object) -> object:
        if left[0] and "relay.0" in str(given[0]):
            left[0] -= 1
        elif "relay.0" in str(given[0]) or call == "write":
            if not left[0]:
                raise OSError(errno.ENOSPC, "full")
            left[0] -= 1
        return real(*given)

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="full"):
        chain.begin(HEAD)
    monkeypatch.undo()
    chain.drop()
    assert descriptors(tmp_path) == []
    chain.close()


def test_dropping_gives_back_every_descriptor(tmp_path: Path) -> None:
    chain = FileChain(tmp_path, 1)
    for _ in range(5):
        chain.begin(HEAD).append(memoryview(b"12345"), len(HEAD))
        chain.end(entry(len(HEAD) + 5))
    chain.begin(HEAD)
    assert descriptors(tmp_path)
    chain.drop()
    assert descriptors(tmp_path) == []
    assert chain.current is None
    chain.close()


def test_in_order_and_not_after_one_that_failed() -> None:
    sealer, seen = Sealer(), []

    def seal(number: int, *, fails: bool = False) -> None:
        def run(wanted: bool) -> None:  # noqa: FBT001
            seen.append((number, wanted))
            if fails:
                raise OSError(28, "full")

        sealer.submit(run)

    seal(1)
    sealer.finish()
    with pytest.raises(OSError, match="full"):  # noqa: PT012  (whichever call meets it first)
        seal(2, fails=True)
        seal(3)
        seal(4)
        sealer.finish()
    sealer.abandon()
    assert seen[:2] == [(1, True), (2, True)]
    assert all(not wanted for _, wanted in seen[2:])
    seen.clear()
    seal(5)
    sealer.finish()
    assert seen == [(5, True)], "after a recovery"
    sealer.close()


def test_a_slow_disk_makes_the_writer_wait() -> None:
    sealer, release, begun = Sealer(), threading.Event(), []

    def slow(wanted: bool) -> None:  # noqa: FBT001
        begun.append(wanted)
        release.wait(60)

    for _ in range(MAX_WAITING):
        sealer.submit(slow)
    thread = threading.Thread(target=sealer.submit, args=(slow,))
    thread.start()
    thread.join(0.05)
    assert thread.is_alive()
    release.set()
    thread.join()
    sealer.close()
    assert begun == [True] * (MAX_WAITING + 1)
