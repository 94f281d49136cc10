"""Standard output of commands that write much: buffered, and silent if its reader closes the pipe.

`standard_output` yields the stream. If the reader closes the pipe, as `head` does, the command ends with BROKEN_PIPE
and without a message. Any other write error is a ReplicaError.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final

from replica.errors import ReplicaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BUFFER_BYTES: Final = 1 << 18
BROKEN_PIPE: Final = 128 + signal.SIGPIPE
"""Exit code that a shell reports for a program whose reader closed the pipe."""
_GONE: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL


@contextlib.contextmanager
def standard_output() -> Iterator[BinaryIO]:
    """Yield the binary stream, and flush it at the end.

    Raises:
        SystemExit: with BROKEN_PIPE, if the reader closed the pipe. Nothing more is written.
        ReplicaError: the output cannot be written.
    """
    out = _open()
    try:
        try:
            yield out
        finally:
            out.flush()
    except BrokenPipeError:
        forget(out)
        raise SystemExit(BROKEN_PIPE) from None
    except OSError as error:
        forget(out)
        raise cannot_be_written(error) from error


def forget(stream: IO[Any]) -> None:
    """Discard the buffered and all later output of a stream.

    Otherwise Python would write the buffer at exit, and report an error if the write fails.
    """
    with contextlib.suppress(OSError):  # a stream that another program set, without a descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def cannot_be_written(error: OSError) -> ReplicaError:
    """Return the error for a command whose standard output failed."""
    return ReplicaError(f"standard output cannot be written: {error.strerror}.")


def _open() -> BinaryIO:
    try:
        return open(sys.stdout.fileno(), "wb", buffering=BUFFER_BYTES, closefd=False)
    except OSError:  # another program has set a stream without a descriptor
        return sys.stdout.buffer


def sleeper(out: BinaryIO) -> Callable[[float], None]:
    """Return a sleep function that raises BrokenPipeError once `out` has no reader.

    Without this check, a program that writes nothing would not notice that its reader has ended.
    """
    poll = select.poll()
    with contextlib.suppress(OSError):  # a stream without a descriptor
        poll.register(out.fileno(), 0)

    def sleep(seconds: float) -> None:
        if any(event & _GONE for _, event in poll.poll(seconds * 1000)):
            raise BrokenPipeError

    return sleep


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """End the block at SIGTERM and SIGHUP with a KeyboardInterrupt, as at Ctrl-C, so that everything is cleaned up."""
    before = {number: signal.signal(number, signal.default_int_handler) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
