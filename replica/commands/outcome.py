"""Conversion of a command's errors to one line on standard error, and an exit code.

`call` runs every command of the program. A user never sees a traceback for a ReplicaError, and errors.py defines the
exit code of each error.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import click

from replica.commands.dump.output import BROKEN_PIPE, cannot_be_written, forget
from replica.errors import ConfigError, ReplicaError
from replica.installation import installation_error
from replica.protocol.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

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
