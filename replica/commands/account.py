"""The source of a command's account when none is given, and the warning when others can read its secrets too.

In: the options as they were given. Out: sentences on standard error; nothing there is a secret.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from replica.daemon.config import DaemonConfig
from replica.options.client import home_file, option_file_password
from replica.options.secrets import exposed

if TYPE_CHECKING:
    from replica.options.config import ReplicaConfig

_ACCOUNT = frozenset({"user", "password", "password_file", "defaults_file"})


def add_home_file(values: dict[str, object], sources: dict[str, str]) -> None:
    """Read the user's own option file, as MariaDB's clients do, where nothing was said about the account; and say
    so.
    """
    if values.keys() & _ACCOUNT:
        return
    path = home_file()
    if path is not None:
        values["defaults_file"], sources["defaults_file"] = path, "no user or password is given"
        click.echo(f"mariadb-replica: reading {path}, because neither user nor password is given.", err=True)


def warn_of_exposed_files(config: ReplicaConfig, sources: dict[str, str]) -> None:
    """Warn of files with a secret that every user of this machine may read."""
    files = [config.password_file, config.tls_key]
    if isinstance(config, DaemonConfig):
        files += [config.http_token_file, config.http_tls_key]
    # Of these two it has to be known whether a secret stands in them.
    if sources.get("password") and Path(sources["password"]).is_file():
        files.append(Path(sources["password"]))
    if config.defaults_file and option_file_password(config.defaults_file) is not None:
        files.append(config.defaults_file)
    for warning in exposed(files):
        click.echo(f"mariadb-replica: warning: {warning}", err=True)
