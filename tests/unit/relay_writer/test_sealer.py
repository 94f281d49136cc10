from __future__ import annotations

import threading

import pytest

from replica.relay_writer.chain import MAX_WAITING, Sealer


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
