"""Options of commands: their values from all sources, the log to read, and the account.

In: command line, environment and configuration file; the first of them that has an option wins. Out: the checked
configuration that the command receives, and the source of each value. Refused: options that the table does not have, in
the environment too, where a misspelt name would otherwise be ignored.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from replica.daemon.config import DaemonConfig
from replica.errors import ConfigError
from replica.options.config import ENVIRONMENT_PREFIX, ReplicaConfig, read_options_file, unknown_option, variables_of
from replica.options.file import exposed, home_file, option_file_password

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    _Decorator = Callable[[Callable[..., None]], Callable[..., None]]


_ACCOUNT = frozenset({"user", "password", "password_file", "defaults_file"})


def add_home_file(values: dict[str, object], sources: dict[str, str]) -> None:
    """Add the user's own option file, as MariaDB's clients do, if no account option is given; print its path."""
    if values.keys() & _ACCOUNT:
        return
    path = home_file()
    if path is not None:
        values["defaults_file"], sources["defaults_file"] = path, "no user or password is given"
        click.echo(f"mariadb-replica: reading {path}, because neither user nor password is given.", err=True)


def warn_of_exposed_files(config: ReplicaConfig, sources: dict[str, str]) -> None:
    """Warn about files with a secret that every user of this machine may read."""
    files = [config.password_file, config.tls_key]
    if isinstance(config, DaemonConfig):
        files += [config.http_token_file, config.http_tls_key]
    # These two options need not name a file with a secret, so their values are checked first.
    if sources.get("password") and Path(sources["password"]).is_file():
        files.append(Path(sources["password"]))
    if config.defaults_file and option_file_password(config.defaults_file) is not None:
        files.append(config.defaults_file)
    for warning in exposed(files):
        click.echo(f"mariadb-replica: warning: {warning}", err=True)


_Config = TypeVar("_Config", bound="ReplicaConfig")

CONFIG_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
"""Environment variable of --config."""

OTHER_VARIABLES = frozenset({CONFIG_VARIABLE, f"{ENVIRONMENT_PREFIX}FILE_KEY"})
"""Variables that are no options of a replica. The second is for `dump`."""

_GATHERED = "replica.gathered"

_READ_CONFIG = "replica.again"

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
    """Return a decorator that adds the option `name` of the table of `kind` to a command, with `text` as its help.

    The value is None if the command line does not have the option.
    """
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


def config_reader(kind: type[_Config]) -> Callable[[], _Config]:
    """Return a function that reads the options of the running command again, because its files may have changed.

    The function raises ConfigError, like the first read.
    """
    again = click.get_current_context().find_root().meta[_READ_CONFIG]

    def read() -> _Config:
        config = again()
        if not isinstance(config, kind):
            raise TypeError(f"{kind.__name__} is not what the command reads")
        return config

    return read


def gather(
    kind: type[ReplicaConfig], line: Mapping[str, object], variables: Mapping[str, str], file: Path | None
) -> Gathered:
    """Return all given options of `kind` with their sources. The command line wins over the environment, and the
    environment over the file.

    Args:
        kind: class with the table of options.
        line: values of the command line by option name; None for options that are not given.
        variables: the environment.
        file: configuration file, if there is one.

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
        if value and not (name == "port" and value.startswith("tcp://")):  # tcp:// is the value of a service link
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
            click.get_current_context().find_root().meta.update({_GATHERED: found, _READ_CONFIG: lambda: read()[0]})
            warn_of_exposed_files(config, found.sources)
            command(config, **own)

        call.__doc__ = command.__doc__
        call.__name__ = command.__name__
        for name, text in reversed(options.items()):
            known = kind.default_text(name)
            call = option_of(kind, name, f"{text}.  [default: {known}]" if known else f"{text}.")(call)
        return config_option("TOML file of these options.")(call)

    return decorate


# A configured relay directory wins, so that a command on the daemon's machine reads the daemon's log. Only --direct
# queries the primary.


CONNECTION: Final = (
    *("host", "port", "unix_socket", "user", "password", "password_file", "defaults_file"),
    *("tls", "tls_ca", "tls_cert", "tls_key", "compress"),
)
"""Options of a connection. Other options count too, from the file and the environment."""

_LOGIN_OPTIONS: Final = frozenset({"user", "defaults_file"})


class LogChoice(NamedTuple):
    """The chosen log. `relay_dir` is None if the primary is to be queried."""

    relay_dir: Path | None
    gathered: Gathered

    @property
    def connects(self) -> bool:
        """Whether an account is given."""
        return bool(_LOGIN_OPTIONS & self.gathered.values.keys())

    def config(self) -> ReplicaConfig:
        """Return the checked options of a connection.

        Raises:
            ConfigError: no log is given, or an option is missing, contradictory or out of range.
        """
        values, sources = self.gathered
        if self.relay_dir is None and not {"host", "unix_socket", *_LOGIN_OPTIONS} & values.keys():
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
    """Return the log that the options of command line, environment and file choose.

    With `direct`, the primary is queried even if a relay directory is configured. The other arguments are those of
    `gather`.

    Raises:
        ConfigError: the options contradict each other, or are unknown.
    """
    found = gather(ReplicaConfig, line, variables, file)
    directory = found.values.get("relay_dir")
    if direct and line.get("relay_dir"):
        raise ConfigError("--direct and --relay-dir exclude each other.")
    return LogChoice(None if direct or not directory else Path(str(directory)), found)
