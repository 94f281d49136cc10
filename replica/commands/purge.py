"""`mariadb-replica purge`: remove old files of a relay log by hand, with or without a running daemon.

Whole files are removed, the oldest first, but never the one that is written or that holds the last transaction. Files
that a registered reader still needs are kept and reported. With --force they are removed; before that their readers are
marked, so that they get a DataLossError. It is safe beside the daemon's own retention, because both hold the same lock
while they choose and remove files.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from replica.command_options import Parsed
from replica.commands.arguments.options import config_option, gather
from replica.commands.purging import Choice, Plan, purge_files
from replica.errors import ConfigError, RelayError
from replica.options.config import ReplicaConfig
from replica.options.values import seconds, size
from replica.plain_text import one_line
from replica.protocol.gtid import GtidPosition
from replica.relay_log.directory.identity import read_identity
from replica.tail.source import check_relay_directory

if TYPE_CHECKING:
    from collections.abc import Iterator


@click.command(short_help="Remove old files of a relay log.")
@click.option("--relay-dir", "relay_dir", metavar="FOLDER", help="Folder of the relay log.")
@config_option("TOML file of a replica.")
@click.option(
    "--before",
    metavar="GTIDS",
    type=Parsed(GtidPosition.parse),
    help="Files that end before these transactions: 0-1-100 or 0-1-100,1-2-7.",
)
@click.option(
    "--older-than",
    "older_than_s",
    metavar="TIME",
    type=Parsed(seconds),
    help="Files whose last transaction was received longer ago: 36h, 2d.",
)
@click.option(
    "--keep", "keep_bytes", metavar="SIZE", type=Parsed(size), help="The oldest files, down to this size: 500m, 1g."
)
@click.option("--all-but-last", is_flag=True, help="All files but the one with the last transaction.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and remove nothing.")
@click.option(
    "--force",
    is_flag=True,
    help="Also files that registered readers still need; these readers then fail with an error.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
def purge(
    *,
    relay_dir: str | None,
    config_file: Path | None,
    before: GtidPosition | None,
    older_than_s: float | None,
    keep_bytes: int | None,
    all_but_last: bool,
    dry_run: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Remove the oldest files of a relay log, whole files only. One of --before, --older-than, --keep and
    --all-but-last says which.
    """
    directory = _directory(relay_dir, config_file)
    choice = _checked(Choice(before, older_than_s, keep_bytes), all_but_last=all_but_last)
    check_relay_directory(directory)
    _refuse_embedded(directory, force=force)
    made = purge_files(directory, choice, force=force, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(made.as_dict(dry_run=dry_run)))
        return
    for line in _words(made, dry_run=dry_run, force=force):
        click.echo(one_line(line))


def _directory(relay_dir: str | None, config_file: Path | None) -> Path:
    found = gather(ReplicaConfig, {"relay_dir": relay_dir}, os.environ, config_file).values.get("relay_dir")
    if not found:
        raise ConfigError(
            "option relay_dir is missing.",
            hint="Name the folder of a replica's relay log: --relay-dir FOLDER, or --config FILE of its daemon.",
        )
    return Path(str(found))


def _checked(choice: Choice, *, all_but_last: bool) -> Choice:
    given = (*choice, all_but_last or None)
    names = ("--before", "--older-than", "--keep", "--all-but-last")
    named = [name for name, value in zip(names, given, strict=True) if value is not None]
    if len(named) != 1:
        raise ConfigError(
            f"{' and '.join(named)} exclude each other." if named else "no option selects the files to remove.",
            hint="Give one of --before, --older-than, --keep and --all-but-last.",
        )
    if choice.before is not None and not choice.before:
        raise ConfigError(
            "--before: no GTID was given.", hint="Give the last transaction of each domain: 0-1-4711,7-2-9."
        )
    return choice


def _refuse_embedded(directory: Path, *, force: bool) -> None:
    identity = None if force else read_identity(directory)
    if identity is not None and identity.owner == "embedded":
        raise RelayError(
            f"{directory} belongs to a replica inside another program, such as a Spark query, which removes files "
            "itself after reading them.",
            hint="It fails if files are missing that it has not read. Use --force if it is not in use any more.",
        )


def _words(made: Plan, *, dry_run: bool, force: bool) -> Iterator[str]:
    if made.files:
        names = made.files[0].name if len(made.files) == 1 else f"{made.files[0].name} to {made.files[-1].name}"
        verb = "would be removed" if dry_run else "removed"
        files = "1 file" if len(made.files) == 1 else f"{len(made.files)} files"
        yield f"{names}: {files}, {made.bytes:,} bytes {verb}."
        begins = "would begin" if dry_run else "begins now"
        yield f"The log {begins} after {made.oldest or 'nothing: with its first transaction'}."
    else:
        yield "Nothing to remove."
    if made.stopped:
        yield f"No more files can be removed: {made.stopped}."
    for reader in made.waiting:
        seen = max(0.0, time.time() - reader.seen)
        word = "loses files that it has not read" if force else "still needs it"
        yield f"  {reader.name}: at {reader.location}, after {reader.position}, seen {seen:,.0f} s ago; {word}"
