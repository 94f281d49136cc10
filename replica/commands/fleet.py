"""`mariadb-replica fleet`: daemons of several primaries on one machine, each in its own process, from one program.

In: configuration files, or folders of them (`*.toml`). Out: the effect of `run` for each, until SIGTERM or SIGINT. The
program, its libraries and its kernels are loaded once, before the processes are forked. Each process has only its
connection and the state of its relay log for itself. A wrong file, or a daemon that fails, affects no other daemon.
"""

from __future__ import annotations

import contextlib
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from replica.commands.arguments import gather, option_of
from replica.commands.outcome import PROGRAM, call
from replica.commands.run import run
from replica.daemon.config import DaemonConfig
from replica.daemon.fleet import Fleet
from replica.daemon.logs import LogWriter
from replica.errors import ConfigError, ReplicaError
from replica.native.warm import load_imported

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@click.command(name="fleet")
@click.argument("files", nargs=-1, required=True, metavar="FILE|FOLDER...", type=click.Path(path_type=Path))
@option_of(
    DaemonConfig,
    "log_format",
    "Format of the fleet's own log lines: json or text. Each file sets the format of its daemon.",
)
def fleet(files: tuple[Path, ...], log_format: str | None) -> None:
    """Run one daemon for each configuration FILE, and for each *.toml in a FOLDER.

    Each daemon is a process; all share the memory of the program and its libraries. A daemon that fails is restarted,
    and the others continue.

    Exit code: 0 after a requested stop. If no daemon is left, the code of one that a restart cannot help.
    """
    named = _named(list(_found(files)))

    def log_event(level: str, event: str, **fields: object) -> None:
        # The log is open for one line only, because it has a thread, and no thread may exist when a process is forked.
        logs = LogWriter(style=log_format or "json", level="info")
        getattr(logs.logger, level)(event, **fields)
        logs.close()

    log_event("info", "fleet begins", daemons=len(named), kernels=load_imported())
    # The garbage collector never visits the existing objects again, so that pages that no one writes stay shared.
    gc.collect()
    gc.freeze()
    raise SystemExit(Fleet(named, _serve, log_event).run())


def _serve(file: Path) -> None:
    """Run the daemon of one file, in its own process."""
    arguments = ["--config", str(file)]
    with contextlib.suppress(ReplicaError):  # `run` has reported the error
        if "cluster" not in gather(DaemonConfig, {}, os.environ, file).values:
            arguments += ["--cluster", file.stem]
    call(run, arguments, name=f"{PROGRAM} run")


def _found(files: Sequence[Path]) -> Iterator[Path]:
    for path in files:
        try:
            inside = sorted(path.glob("*.toml")) if path.is_dir() else [path]
        except OSError as error:
            raise ConfigError(f"{path} cannot be read: {error.strerror}.", hint="Ask as the daemon's user.") from None
        if not inside:
            raise ConfigError(
                f"folder {path} has no file *.toml.", hint="Put the configuration file of each daemon there."
            )
        yield from inside


def _named(files: Sequence[Path]) -> dict[str, Path]:
    """Return the files by their name without its ending, which is the daemon's name."""
    named: dict[str, Path] = {}
    for file in files:
        if not file.is_file():
            raise ConfigError(f"{file} is not a file.", hint="Name a daemon's configuration, or a folder of them.")
        if file.stem in named:
            raise ConfigError(
                f"{named[file.stem]} and {file} have the same name.",
                hint="A daemon has the name of its file: rename one.",
            )
        named[file.stem] = file
    return named
