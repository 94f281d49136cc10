"""`mariadb-replica purge`: remove old files of a relay log by hand, with or without a running daemon.

Whole files are removed, the oldest first. The file that is being written and the file with the last transaction always
stay. Files that a registered reader still needs are kept and reported. With --force they are removed; before that their
readers are marked, so that they get a DataLossError. The command is safe beside the daemon's own retention, because
both hold the same lock while they choose and remove files.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from replica.commands.arguments import config_option, gather
from replica.commands.shared_options import Parsed
from replica.commands.tail.source import check_relay_directory
from replica.errors import ConfigError, RelayError
from replica.options.config import ReplicaConfig
from replica.options.values import seconds, size
from replica.protocol.gtid import GtidPosition
from replica.protocol.plain_text import one_line
from replica.relay_log.directory.disk import disk_error
from replica.relay_log.directory.head import read_head
from replica.relay_log.directory.identity import read_identity
from replica.relay_log.directory.readers import make_readers_directory, mark_dropped, registered_readers, removal_lock
from replica.relay_log.files.index import last_entry
from replica.relay_log.files.lookup import read_file_head, remove_oldest
from replica.relay_log.location import index_path, relay_numbers, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.relay_log.directory.readers import Reader
    from replica.relay_log.location import RelayHead

# A plan never contains the file with the last transaction, a later file, or a file that may not be on disk yet. It
# contains a file that a registered reader still needs only with `force`.


LOCK_WAIT_S: Final = 10.0
"""Maximum wait in seconds for the lock, which a registering reader holds for milliseconds."""
LOCK_POLL_S: Final = 0.05


class Choice(NamedTuple):
    """Criterion for the files to remove. At most one field is given; without one, all removable files are chosen."""

    before: GtidPosition | None = None
    older_than_s: float | None = None
    keep_bytes: int | None = None


class OldFile(NamedTuple):
    """Relay file that can be removed: its number, and its size in bytes."""

    number: int
    bytes: int

    @property
    def name(self) -> str:
        return f"relay.{self.number:06d}"


@dataclass(slots=True)
class Plan:
    """Plan to remove files.

    `stopped` is the reason why there are not more files, or '' if all requested ones are included. `oldest` is the
    position after which the log begins.
    """

    files: list[OldFile] = field(default_factory=list)
    stopped: str = ""
    waiting: list[Reader] = field(default_factory=list)
    """Readers that need the kept files, or with `force` those that lose files."""
    oldest: GtidPosition | None = None

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def as_dict(self, *, dry_run: bool) -> dict[str, object]:
        """Return the plan for JSON."""
        return {
            "dry_run": dry_run,
            "files": [file.name for file in self.files],
            "bytes": self.bytes,
            "stopped": self.stopped,
            "readers": [reader.name for reader in self.waiting],
            "begins_after": None if self.oldest is None else str(self.oldest),
        }


def _plan(directory: Path, choice: Choice, *, force: bool) -> Plan:
    """Return the plan for the current state of the log."""
    head = read_head(directory)
    if head is None:
        return Plan(stopped="the relay log is empty")
    if choice.before is not None:
        _check_domains(choice.before, head)
    # The log may end with a file without a group. The last group is then in the file before.
    last = head.location.file if head.location.offset else head.location.file - 1
    numbers = [number for number in relay_numbers(directory) if number <= last]
    left = sum(relay_path(directory, number).stat().st_size for number in numbers)
    readers, made, now = registered_readers(directory), Plan(), time.time()
    for number, following in pairwise(numbers):
        size = relay_path(directory, number).stat().st_size
        if not _is_chosen(directory, choice, number, following, left, now):
            break
        needing = [reader for reader in readers if reader.location.file <= number]
        if needing and not force:
            made.waiting = needing
            made.stopped = f"relay.{number:06d} is still needed by {', '.join(reader.name for reader in needing)}"
            break
        if last_entry(index_path(directory, number)) is None:
            made.stopped = f"relay.{number:06d} is not completely on disk yet"
            break
        made.waiting += [reader for reader in needing if reader not in made.waiting]
        made.files.append(OldFile(number, size))
        left -= size
    else:
        made.stopped = f"relay.{last:06d} holds the last transaction" if numbers else "the relay log is empty"
    removed = {file.number for file in made.files}
    stays = next((number for number in numbers if number not in removed), None)
    made.oldest = None if stays is None else read_file_head(relay_path(directory, stays)).position
    return made


def purge_files(directory: Path, choice: Choice, *, force: bool = False, dry_run: bool = False) -> Plan:
    """Remove the chosen files; with `dry_run`, only return the plan.

    Args:
        directory: the relay directory.
        choice: the files to remove.
        force: also remove files that readers need; the readers are marked before.
        dry_run: remove nothing.

    Raises:
        ConfigError: the log has no transaction of a domain in `before`.
        RelayError: the directory cannot be read or written by this user, or another process holds its lock for long.
    """
    try:
        with _removal_lock(directory):
            made = _plan(directory, choice, force=force)
            if made.files and not dry_run:
                for reader in made.waiting if force else ():
                    mark_dropped(directory, reader, made.files[-1].number + 1, "someone purged them with --force")
                remove_oldest(directory, range(made.files[0].number, made.files[-1].number + 1))
            return made
    except OSError as error:
        raise disk_error(directory, error) from error


def _check_domains(position: GtidPosition, head: RelayHead) -> None:
    for gtid in position:
        if gtid.domain_id not in head.position:
            raise ConfigError(
                f"--before: the log does not have domain {gtid.domain_id}; it is at {head.position}.",
                hint="A GTID is domain-server-sequence.",
            )


def _is_chosen(directory: Path, choice: Choice, number: int, following: int, left: int, now: float) -> bool:
    """Return True if a file fits the choice. `left` is the size in bytes of this and all later files."""
    if choice.before is not None:
        ends = read_file_head(relay_path(directory, following)).position
        known = {gtid.domain_id: gtid.seq_no for gtid in ends}
        return all(known.get(gtid.domain_id, -1) < gtid.seq_no for gtid in choice.before)
    if choice.older_than_s is not None:
        entry = last_entry(index_path(directory, number))
        written = relay_path(directory, number).stat().st_mtime
        return now - max(written, entry.timestamp if entry else 0) > choice.older_than_s
    return choice.keep_bytes is None or left > choice.keep_bytes


@contextlib.contextmanager
def _removal_lock(directory: Path) -> Iterator[None]:
    make_readers_directory(directory)
    deadline = time.monotonic() + LOCK_WAIT_S
    with contextlib.ExitStack() as locks:
        while True:
            try:
                locks.enter_context(removal_lock(directory))
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RelayError(
                        f"The lock for removing files of {directory} is held for more than {LOCK_WAIT_S:.0f} s.",
                        hint="A process that reads this log hangs while it registers: end it, and try again.",
                    ) from None
                time.sleep(LOCK_POLL_S)
        yield


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
    """Remove the oldest files of a relay log. One of --before, --older-than, --keep and --all-but-last selects them."""
    directory = _directory(relay_dir, config_file)
    choice = _checked(Choice(before, older_than_s, keep_bytes), all_but_last=all_but_last)
    check_relay_directory(directory)
    _refuse_embedded(directory, force=force)
    made = purge_files(directory, choice, force=force, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(made.as_dict(dry_run=dry_run)))
        return
    for line in _lines(made, dry_run=dry_run, force=force):
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


def _lines(made: Plan, *, dry_run: bool, force: bool) -> Iterator[str]:
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
        note = "loses files that it has not read" if force else "still needs it"
        yield f"  {reader.name}: at {reader.location}, after {reader.position}, seen {seen:,.0f} s ago; {note}"
