"""Options of a command: made from the table of options, gathered from all sources, checked before the command runs.

In: command line, environment and configuration file; the first of them that has an option wins. Out: the checked
configuration that the command receives, and the source of each value. Refused: options that the table does not have, in
the environment too, where a misspelt name would otherwise be ignored.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from replica.commands.account import add_home_file, warn_of_exposed_files
from replica.daemon.config import DaemonConfig
from replica.options.config import ENVIRONMENT_PREFIX, read_options_file, unknown_option, variables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from replica.options.config import ReplicaConfig

    _Decorator = Callable[[Callable[..., None]], Callable[..., None]]

_Config = TypeVar("_Config", bound="ReplicaConfig")

CONFIG_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
"""Environment variable of --config."""

OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, f"{ENVIRONMENT_PREFIX}FILE_KEY"})
"""Variables that are no options of a replica. The second is for `dump`."""

_GATHERED = "replica.gathered"
_AGAIN = "replica.again"
# Kubernetes gives every container such variables for a service named mariadb-replica.
_SERVICE_LINK = re.compile(rf"{ENVIRONMENT_PREFIX}(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP)(_\w+)?)")


class Gathered(NamedTuple):
    """The given options by name, and the source of each."""

    values: dict[str, object]
    sources: dict[str, str]


def flags(kind: type[ReplicaConfig]) -> tuple[str, ...]:
    """Return the options that are on or off: --semi-sync and --no-semi-sync."""
    return tuple(name for name, field in kind.model_fields.items() if field.annotation is bool)


def option_flag(name: str) -> str:
    """Return an option in the notation of the command line: relay_max_file_age_s -> --relay-max-file-age."""
    return f"--{name.removesuffix('_s').replace('_', '-')}"


def option_of(kind: type[ReplicaConfig], name: str, text: str) -> _Decorator:
    """Add one option of the table to a command. Its value is None if the command line does not have it."""
    flag = option_flag(name)
    if name in flags(kind):
        return click.option(f"{flag}/--no-{flag.removeprefix('--')}", name, default=None, help=text)
    return click.option(flag, name, metavar="TEXT", help=text)


def config_option(text: str) -> _Decorator:
    """Add --config to a command."""
    file = click.Path(path_type=Path, dir_okay=False)
    return click.option("--config", "config_file", type=file, envvar=CONFIG_VARIABLE, help=text)


def gathered() -> Gathered:
    """Return the options of the running command with their sources, for code that needs more than the configuration."""
    found = click.get_current_context().find_root().meta[_GATHERED]
    if not isinstance(found, Gathered):
        raise TypeError(f"{found!r} is not what a command gathers")
    return found


def reading_again(kind: type[_Config]) -> Callable[[], _Config]:
    """Return a function that reads the options of the running command again, because its files may have changed.

    The function raises ConfigError, like the first read.
    """
    again = click.get_current_context().find_root().meta[_AGAIN]

    def read() -> _Config:
        config = again()
        if not isinstance(config, kind):
            raise TypeError(f"{kind.__name__} is not what the command reads")
        return config

    return read


def gather(
    kind: type[ReplicaConfig], line: Mapping[str, object], variables: Mapping[str, str], file: Path | None
) -> Gathered:
    """Return the options of `kind` from the command line (None: not given), the environment and a file, in this order.

    Raises:
        ConfigError: the file cannot be read, or the environment has an unknown name.
    """
    values: dict[str, object] = {}
    sources: dict[str, str] = {}
    for key, value in read_options_file(file).items() if file else ():
        name = kind.name_of(key)
        if name is None and DaemonConfig.name_of(key):
            continue  # one file may serve the daemon and the commands beside it
        values[name or key], sources[name or key] = value, str(file)
    _refuse_misspelt(variables)
    for variable, name in variables_of(kind.model_fields).items():
        value = variables.get(variable, "")
        if value and not (name == "port" and value.startswith("tcp://")):  # a service link too
            values[name], sources[name] = value, variable
    for name, value in line.items():
        if value is not None:
            values[name], sources[name] = value, option_flag(name)
    return Gathered(values, sources)


def _refuse_misspelt(variables: Mapping[str, str]) -> None:
    known = variables_of(DaemonConfig.model_fields).keys() | OTHER_VARIABLES
    for variable in variables:
        name = variable.removeprefix(ENVIRONMENT_PREFIX)
        if name != variable and variable not in known and not _SERVICE_LINK.fullmatch(variable):
            raise unknown_option(name.lower(), DaemonConfig.spellings(), f"environment variable {variable}")


def configured(kind: type[_Config]) -> _Decorator:
    """Add --config and every option of `kind` to a command, which receives the checked configuration."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        options = kind.help()

        def call(config_file: Path | None, **given: Any) -> None:
            own = {name: given.pop(name) for name in list(given) if name not in options}

            def read() -> tuple[_Config, Gathered]:
                found = gather(kind, given, os.environ, config_file)
                add_home_file(found.values, found.sources)
                return kind.parse(found.values, sources=found.sources), found

            config, found = read()
            click.get_current_context().find_root().meta.update({_GATHERED: found, _AGAIN: lambda: read()[0]})
            warn_of_exposed_files(config, found.sources)
            command(config, **own)

        call.__doc__ = command.__doc__
        call.__name__ = command.__name__
        for name, text in reversed(options.items()):
            known = kind.default_text(name)
            call = option_of(kind, name, f"{text}.  [default: {known}]" if known else f"{text}.")(call)
        return config_option("TOML file of these options.")(call)

    return decorate
