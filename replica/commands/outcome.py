"""How a command ends: its standard output, its errors as one line on standard error, and its exit code.

`call` runs every command of the program. A user never sees a traceback for a ReplicaError, and errors.py defines the
exit code of each error.

`standard_output` yields the buffered stream of commands that write much. If the reader closes the pipe, as `head` does,
the command ends with BROKEN_PIPE and without a message. Any other write error is a ReplicaError.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
from typing import IO, TYPE_CHECKING, Any, BinaryIO, Final, NoReturn

import click

from replica.errors import ConfigError, ReplicaError
from replica.installation import installation_error
from replica.protocol.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

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


PROGRAM = "mariadb-replica"
"""Name of the program on every page, even if it was started as `python -m replica`."""


def call(program: click.Command, arguments: Sequence[str] | None = None, *, name: str = PROGRAM) -> None:
    """Run a command and end the process if it fails.

    Args:
        program: the command.
        arguments: its arguments; None for those of the process.
        name: its name in the usage text.

    Raises:
        SystemExit: the command failed, and the line is written.
    """
    output = sys.stdout
    try:
        program.main(arguments, prog_name=name, standalone_mode=False)
    except SystemExit:
        if sys.stdout is not output:  # click handles a broken pipe in this way, and exits with 1
            sys.stdout = output
            if _output_is_lost():
                raise SystemExit(BROKEN_PIPE) from None
        raise
    except OSError as error:
        if not _output_is_lost():
            raise
        _end(cannot_be_written(error))
    except ReplicaError as error:
        _end(error)
    except ImportError as error:
        _end(installation_error(error) or error)
    except click.ClickException as error:
        error.show()
        raise SystemExit(ConfigError.exit_code) from None
    except click.Abort:
        raise SystemExit(130) from None


def _output_is_lost() -> bool:
    """Return True if standard output cannot be written any more; then discard later output."""
    try:
        sys.stdout.write("\n")  # without a buffer no unwritten output remains
        sys.stdout.flush()
    except OSError:
        forget(sys.stdout)
        return True
    return False


def _end(error: Exception) -> NoReturn:
    if not isinstance(error, ReplicaError):
        raise error
    click.echo(f"{PROGRAM}: {one_line(str(error))}", err=True)
    raise SystemExit(error.exit_code) from None
