from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, TextIO

import pytest

from replica.commands.outcome import BROKEN_PIPE, interruptible, sleeper, standard_output
from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end to read from, and a stream to write to."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        yield reader, stream


def test_what_is_written_is_flushed_at_the_end(pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", pipe[1])
    with standard_output() as out:
        out.write(b"a line\n")
    os.set_blocking(pipe[0], False)
    assert os.read(pipe[0], 100) == b"a line\n"
    os.close(pipe[0])


def test_a_reader_that_went_away_is_no_error(pipe: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", pipe[1])
    os.close(pipe[0])
    with pytest.raises(SystemExit) as ended, standard_output() as out:
        out.write(b"a line\n")
    assert ended.value.code == BROKEN_PIPE


def test_a_pause_notices_that_nobody_reads(pipe: tuple[int, TextIO]) -> None:
    sleep = sleeper(pipe[1].buffer)
    sleep(0)
    os.close(pipe[0])
    with pytest.raises(BrokenPipeError):
        sleep(10)


def test_a_full_device_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as device:  # noqa: PTH123  (a device, not a path of ours)
        monkeypatch.setattr(sys, "stdout", device)
        with pytest.raises(ReplicaError, match="No space left"), standard_output() as out:
            out.write(b"a line\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_end_a_block_as_ctrl_c_does(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), interruptible():
        signal.raise_signal(number)
    assert signal.getsignal(number) is before
