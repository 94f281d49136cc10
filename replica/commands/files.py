"""`mariadb-replica files`: companion files of the program, copied out of the installed package.

In: a folder, or none for a list. Out: the files of `replica/packaging/`, byte for byte, and an example configuration
made from the table of options. If an existing file differs, the command refuses before it writes any file.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import click

import replica
from replica.commands.options_page import EXAMPLE, example
from replica.errors import ConfigError

PACKAGED = Path(replica.__file__).with_name("packaging")


class Shipped(NamedTuple):
    """One file: its name, its place on a machine, and its purpose."""

    name: str
    place: str
    what: str


SHIPPED = (
    Shipped("mariadb-replica.service", "/etc/systemd/system/", "systemd unit of the daemon"),
    Shipped("mariadb-replica@.service", "/etc/systemd/system/", "the same for several daemons, one per primary"),
    Shipped("mariadb-replica-fleet.service", "/etc/systemd/system/", "many daemons in one service, sharing memory"),
    Shipped("mariadb-replica.sysusers", "/etc/sysusers.d/mariadb-replica.conf", "the unit's user (systemd-sysusers)"),
    Shipped(EXAMPLE.name, "/etc/mariadb-replica/replica.toml", "every option with its default"),
    Shipped("prometheus-alerts.yml", "rule_files of Prometheus", "alert rules"),
    Shipped("grafana-dashboard.json", "Grafana, Import", "dashboard"),
)


@click.command(name="files")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace existing files that differ.")
def files(folder: Path | None, *, force: bool) -> None:
    """Copy systemd units, alert rules, dashboard and example configuration into FOLDER; without FOLDER, list them."""
    if folder is not None:
        _copy(folder, force=force)
    width = max(len(one.name) for one in SHIPPED)
    for one in SHIPPED:
        click.echo(f"{one.name:<{width}}  {one.what}; for {one.place}")
    if folder is not None:
        click.echo(f"Written to {folder}. Nothing is installed: copy each file to its place.")


def content(name: str) -> bytes:
    """Return the bytes of one shipped file."""
    return example().encode() if name == EXAMPLE.name else (PACKAGED / name).read_bytes()


def _copy(folder: Path, *, force: bool) -> None:
    try:
        different = [one.name for one in SHIPPED if not force and _differs(folder / one.name)]
        if different:
            raise ConfigError(
                f"{' and '.join(different)} in {folder} differ from those of this version; nothing was written.",
                hint="Name an empty folder and compare, or replace them with --force.",
            )
        folder.mkdir(parents=True, exist_ok=True)
        for one in SHIPPED:
            (folder / one.name).write_bytes(content(one.name))
    except OSError as error:
        raise ConfigError(
            f"{error.filename or folder} cannot be written: {error.strerror}.",
            hint="Name a folder that this user may write to.",
        ) from None


def _differs(path: Path) -> bool:
    return path.exists() and path.read_bytes() != content(path.name)
