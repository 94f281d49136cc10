"""Make of a command's errors one line on standard error, and an exit code."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NoReturn

import click

from replica.dump.output import BROKEN_PIPE, cannot_be_written, forget
from replica.errors import ConfigError, ReplicaError
from replica.installation import installation_error
from replica.plain_text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

PROGRAM = "mariadb-replica"
"""What it is called on every page, whether it was started by that name or as `python -m replica`."""


def call(program: click.Command, arguments: Sequence[str] | None = None, *, name: str = PROGRAM) -> None:
    """Run a command with these arguments (None: those of the process); its usage calls it by this name.

    Raises:
        SystemExit: it failed; the line is written.
    """
    output = sys.stdout
    try:
        program.main(arguments, prog_name=name, standalone_mode=False)
    except SystemExit:
        if sys.stdout is not output:  # so click takes a broken pipe, and ends with 1
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
    """Tell whether standard output takes nothing any more; then nothing more is written to it."""
    try:
        sys.stdout.write("\n")  # without a buffer nothing is left of what could not be written
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
