"""Default source of a command's account, and warnings about secrets that others can read.

In: the given options. Out: sentences on standard error, which never contain a secret.
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
    """Add the user's own option file, as MariaDB's clients do, if no account option is given; print that."""
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
    # These two files may contain no secret, so that has to be checked first.
    if sources.get("password") and Path(sources["password"]).is_file():
        files.append(Path(sources["password"]))
    if config.defaults_file and option_file_password(config.defaults_file) is not None:
        files.append(config.defaults_file)
    for warning in exposed(files):
        click.echo(f"mariadb-replica: warning: {warning}", err=True)
