"""Choice and removal of relay log files on request.

In: a relay directory and a `Choice`. Out: a `Plan`: the oldest files, and the reason why there are not more. A plan
never has the file with the last transaction, later files, or a file that is not known to be on disk. Only with `force`
does it have a file that a registered reader still needs.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError, RelayError
from replica.relay_log.directory.disk import disk_error
from replica.relay_log.directory.head import read_head
from replica.relay_log.directory.readers import make_readers_directory, mark_dropped, registered_readers, removal_lock
from replica.relay_log.files.file_head import read_file_head
from replica.relay_log.files.index import last_entry
from replica.relay_log.files.removal import remove_oldest
from replica.relay_log.location import index_path, relay_numbers, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from replica.protocol.gtid import GtidPosition
    from replica.relay_log.directory.readers import Reader
    from replica.relay_log.location import RelayHead

LOCK_WAIT_S: Final = 10.0
"""Maximum wait in seconds for the lock, which a registering reader holds for milliseconds."""
LOCK_POLL_S: Final = 0.05


class Choice(NamedTuple):
    """Criterion for the files to remove. At most one field is given; without one, all removable files are chosen."""

    before: GtidPosition | None = None
    older_than_s: float | None = None
    keep_bytes: int | None = None


class OldFile(NamedTuple):
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
        if not _asked_for(directory, choice, number, following, left, now):
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
    gone = {file.number for file in made.files}
    stays = next((number for number in numbers if number not in gone), None)
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


def _asked_for(directory: Path, choice: Choice, number: int, following: int, left: int, now: float) -> bool:
    """Return True if a file fits the choice. `left` is the size in bytes of it and all later files."""
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
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(removal_lock(directory))
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise RelayError(
                        f"The lock for removing files of {directory} is held for more than {LOCK_WAIT_S:.0f} s.",
                        hint="A process that reads this log hangs while it registers: end it, and try again.",
                    ) from None
                time.sleep(LOCK_POLL_S)
        yield
