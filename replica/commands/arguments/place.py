"""Options of commands that read a log: a relay directory, or a connection, with the same names as elsewhere.

In: command line, environment and configuration file of the daemon. Out: a `LogChoice`. A relay directory wins, so that
a command beside a daemon reads the daemon's log. With --direct the primary is queried instead.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from replica.commands.account import add_home_file, warn_of_exposed_files
from replica.commands.arguments.options import config_option, gather, option_of
from replica.errors import ConfigError
from replica.options.config import ReplicaConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from replica.commands.arguments.options import Gathered

CONNECTION: Final = (
    *("host", "port", "unix_socket", "user", "password", "password_file", "defaults_file"),
    *("tls", "tls_ca", "tls_cert", "tls_key", "compress"),
)
"""Options of a connection. Other options count too, from the file and the environment."""


_ACCOUNT: Final = frozenset({"user", "defaults_file"})


class LogChoice(NamedTuple):
    """The chosen log. `relay_dir` is None if the primary is to be queried."""

    relay_dir: Path | None
    gathered: Gathered

    @property
    def connects(self) -> bool:
        """Whether an account is given."""
        return bool(_ACCOUNT & self.gathered.values.keys())

    def config(self) -> ReplicaConfig:
        """Return the checked options of a connection.

        Raises:
            ConfigError: no log is given, or an option is missing, contradictory or out of range.
        """
        values, sources = self.gathered
        if self.relay_dir is None and not {"host", "unix_socket", *_ACCOUNT} & values.keys():
            raise ConfigError(
                "neither a relay log nor a primary is given.",
                hint="Name a replica's folder (--relay-dir), or connect to a primary (--host and --user).",
            )
        add_home_file(values, sources)
        config = ReplicaConfig.parse(values, sources=sources)
        warn_of_exposed_files(config, sources)
        return config


def placed(command: Callable[..., None]) -> Callable[..., None]:
    """Add --relay-dir, --direct, --config and the options of a connection to a command.

    The command receives a `LogChoice`.
    """

    def call(config_file: Path | None, direct: bool, **given: Any) -> None:  # noqa: FBT001  (click's flag)
        own = {name: given.pop(name) for name in list(given) if name not in (*CONNECTION, "relay_dir")}
        command(find_place(given, os.environ, config_file, direct=direct), **own)

    call.__doc__ = command.__doc__
    call.__name__ = command.__name__
    texts = ReplicaConfig.help()
    for name in reversed(CONNECTION):
        call = option_of(ReplicaConfig, name, f"{texts[name]}.")(call)
    call = config_option("TOML file of a replica.")(call)
    call = click.option("--direct", is_flag=True, help="Ask the primary itself, even if a relay_dir is set.")(call)
    return click.option("--relay-dir", "relay_dir", metavar="FOLDER", help="Folder of a replica's relay log.")(call)


def find_place(
    line: Mapping[str, object], variables: Mapping[str, str], file: Path | None, *, direct: bool
) -> LogChoice:
    """Return the log that command line, environment and file choose.

    Raises:
        ConfigError: they contradict each other, or have unknown options.
    """
    found = gather(ReplicaConfig, line, variables, file)
    directory = found.values.get("relay_dir")
    if direct and line.get("relay_dir"):
        raise ConfigError("--direct and --relay-dir exclude each other.")
    return LogChoice(None if direct or not directory else Path(str(directory)), found)
