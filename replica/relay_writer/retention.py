"""Retention: remove relay files by age and size, but keep files that registered readers need, up to a limit.

`Retention.apply` removes complete files, oldest first, and never the file with the last group or a later one. It works
with or without a writer in this or another process. The order is:

1. Files that no registered reader needs, while one of three limits is exceeded: their last group is older than
   `retain_s`, there are more than `retain_bytes`, or the disk has less than `min_free_bytes` free.
2. Files that a reader needs, only while there are more than `max_bytes` (or too little is free), and only with
   `slow_readers="drop"`. The readers are marked as dropped first. With "pause" the files stay, and receiving stops.

A clock that jumps must not empty the log. `SteppedClock` compares the wall clock with the monotonic clock between
calls, and with the time of the previous process. After a step forward of more than MAX_STEP_S, no file is removed by
age for `retain_s`, and no reader expires for `reader_expiry_s`. The existing files have then really reached that age.
The size limit always applies, and bounds the log after a step back.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from replica.relay_log.directory.disk import FULL, disk_error, free_bytes, replace_file
from replica.relay_log.directory.head import read_head
from replica.relay_log.directory.readers import (
    Reader,
    forget_marks,
    forget_reader,
    make_readers_directory,
    mark_dropped,
    registered_readers,
    removal_lock,
)
from replica.relay_log.files.index import last_entry
from replica.relay_log.files.lookup import SealedFiles, remove_oldest
from replica.relay_log.location import RelayLocation, index_path, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SlowReaders = Literal["drop", "pause"]

MAX_LOCKED_S: Final = 60.0
"""Maximum wait for the readers' lock in seconds. A reader holds it for milliseconds, and a stopped reader must not fill
the disk.
"""


class RetentionPolicy(NamedTuple):
    """Retention limits in seconds and bytes.

    `max_bytes` and `retain_bytes` count all relay files, including the current one.
    """

    retain_s: float
    retain_bytes: int
    max_bytes: int
    slow_readers: SlowReaders
    reader_expiry_s: float
    min_free_bytes: int = 0


class Removed(NamedTuple):
    """Result of one call of `Retention.apply`.

    `oldest` is the start of the log, None if the log is empty. `blocked_by` says why no file is removed by age.
    """

    files: int = 0
    bytes: int = 0
    dropped_readers: tuple[str, ...] = ()
    expired_readers: tuple[str, ...] = ()
    oldest: RelayLocation | None = None
    blocked_by: str = ""


class Retention:
    """Retention of one directory.

    One thread calls the methods, which need not be the writer's. Any thread may replace `policy`.
    """

    def __init__(self, directory: Path, policy: RetentionPolicy) -> None:
        self._directory = directory
        self.policy = policy
        self._files = SealedFiles(directory)
        self._clock = SteppedClock(directory)
        self._times: dict[int, float] = {}  # times of the oldest few files
        self._future_since: float | None = None
        self._locked_since_s: float | None = None

    def apply(self, now: float | None = None, monotonic_s: float | None = None) -> Removed:
        """Remove files according to the policy. The cost does not depend on the log's length.

        Args:
            now: Wall clock time in seconds since 1970; None for the current time.
            monotonic_s: Monotonic clock time in seconds; None for the current time.

        Raises:
            RelayError: The directory cannot be read or written.
        """
        now = time.time() if now is None else now
        monotonic_s = time.monotonic() if monotonic_s is None else monotonic_s
        head = read_head(self._directory)
        if head is None:
            return Removed()
        try:
            with contextlib.suppress(OSError):  # the disk may be full, and this call frees space
                make_readers_directory(self._directory)
            self._clock.tick(now, monotonic_s)
            self._files.extend(head.location.file - 1)
            with self._lock(monotonic_s):
                return self._remove(now, head.location)
        except BlockingIOError:
            return Removed(oldest=self._oldest(head.location))
        except OSError as error:
            raise disk_error(self._directory, error) from error

    @contextlib.contextmanager
    def _lock(self, monotonic_s: float) -> Iterator[None]:
        with contextlib.ExitStack() as locks:
            try:
                with contextlib.suppress(FileNotFoundError):  # without the folder there is no reader
                    locks.enter_context(removal_lock(self._directory))
                self._locked_since_s = None
            except BlockingIOError:
                if self._locked_since_s is None:
                    self._locked_since_s = monotonic_s
                if monotonic_s - self._locked_since_s < MAX_LOCKED_S:
                    raise
            yield

    def _remove(self, now: float, head: RelayLocation) -> Removed:
        policy = self.policy
        readers, expired = self._readers(now)
        dropped: list[str] = []
        files = size = 0
        by_age = not self._clock.stepped_within(policy.retain_s)
        while (oldest := self._files.oldest()) is not None:
            number, bytes_ = oldest
            total = self._files.total()[1] + head.offset
            short = free_bytes(self._directory) < policy.min_free_bytes
            slow = [reader for reader in readers if reader.location.file <= number]
            if slow:
                if policy.slow_readers == "pause" or not (total > policy.max_bytes or short):
                    break
            elif not (short or total > policy.retain_bytes or (by_age and self._age(number, now) > policy.retain_s)):
                break
            if last_entry(index_path(self._directory, number)) is None:
                break  # the file is not sealed yet, so its data may not be on disk
            limit = (
                f"the disk had less than {policy.min_free_bytes} bytes free"
                if short
                else (f"the relay log held more than {policy.max_bytes} bytes")
            )
            with _telling(self._directory, slow, number + 1, f"{limit}, and slow_readers=drop"):
                remove_oldest(self._directory, range(number, number + 1))
            dropped += [reader.name for reader in slow]
            readers = [reader for reader in readers if reader not in slow]
            self._files.forget(number)
            self._times.pop(number, None)
            files, size = files + 1, size + bytes_
        return Removed(
            files, size, tuple(dropped), expired, self._oldest(head), "" if by_age else self._clock.last_step
        )

    def _readers(self, now: float) -> tuple[list[Reader], tuple[str, ...]]:
        readers = registered_readers(self._directory)
        expiry_s = self.policy.reader_expiry_s
        if self._clock.stepped_within(expiry_s):
            return readers, ()
        expired = [reader for reader in readers if now - reader.seen > expiry_s]
        for reader in expired:
            forget_reader(self._directory, reader)
        forget_marks(self._directory, now - expiry_s)
        return [reader for reader in readers if reader not in expired], tuple(reader.name for reader in expired)

    def _age(self, number: int, now: float) -> float:
        """Return the seconds since the last group of a file.

        The later of the group's time and the file's modification time counts. If the clock went back, files have times
        in the future. Their age counts from the moment at which the first of these files was seen.
        """
        if number not in self._times:
            entry = last_entry(index_path(self._directory, number))
            written = relay_path(self._directory, number).stat().st_mtime
            time_s = max(written, entry.timestamp if entry else 0)
            if time_s <= now:
                self._future_since = None
            elif self._future_since is None:
                self._future_since = now
            self._times[number] = time_s if self._future_since is None else self._future_since
        return now - self._times[number]

    def _oldest(self, head: RelayLocation) -> RelayLocation | None:
        oldest = self._files.oldest()
        if oldest is not None:
            return RelayLocation(oldest[0], 0)
        return RelayLocation(head.file, 0) if head.offset else None


@contextlib.contextmanager
def _telling(directory: Path, readers: list[Reader], oldest: int, reason: str) -> Iterator[None]:
    """Mark the readers as dropped before their files are removed.

    If the disk is too full for the marks, write them after the removal.
    """
    unknown = []
    for reader in readers:
        try:
            mark_dropped(directory, reader, oldest, reason)
        except OSError as error:
            if error.errno not in FULL:
                raise
            unknown.append(reader)
    yield
    for reader in unknown:
        mark_dropped(directory, reader, oldest, reason)


# After a step of the wall clock, ages of files are meaningless, so `SteppedClock` counts the time since the last step
# with the monotonic clock. It stores this state in `relay.clock` at intervals, without fsync. After a power cut or on a
# full disk the file may be missing, and the next process then trusts the clock.

CLOCK_NAME: Final = "relay.clock"
MAX_STEP_S: Final = 3600.0
"""Minimum change of the clock, in seconds, that counts as a step; a pause of the program of this length counts too.
Smaller steps cost at most an hour of retention.
"""
_WRITE_EVERY_S: Final = 60.0  # much less than MAX_STEP_S


class SteppedClock:
    """Detector of clock steps.

    `last_step` is a text for a log, with time and size of the last step; it is empty without a step.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / CLOCK_NAME
        self._wall_s, self._since_step_s, self.last_step = _read(self._path)
        self._monotonic_s: float | None = None
        self._write_at_s = -math.inf

    def tick(self, wall_s: float, monotonic_s: float) -> None:
        passed_s = 0.0 if self._monotonic_s is None else monotonic_s - self._monotonic_s
        step_s = 0.0 if self._wall_s is None else wall_s - self._wall_s - passed_s
        self._since_step_s += passed_s
        if step_s > MAX_STEP_S:
            self._since_step_s = 0.0
            self._write_at_s = -math.inf
            self.last_step = f"the clock jumped ahead by {step_s:.0f} s, at {wall_s:.0f}"
        self._wall_s, self._monotonic_s = wall_s, monotonic_s
        if monotonic_s >= self._write_at_s:
            self._write_at_s = monotonic_s + _WRITE_EVERY_S
            with contextlib.suppress(OSError):  # the next removal of files reports errors of the folder
                self._write(wall_s)

    def stepped_within(self, seconds: float) -> bool:
        return self._since_step_s < seconds

    def _write(self, wall_s: float) -> None:
        since = None if math.isinf(self._since_step_s) else self._since_step_s
        replace_file(self._path, json.dumps({"wall": wall_s, "since_step": since, "step": self.last_step}).encode())


def _read(path: Path) -> tuple[float | None, float, str]:
    try:
        content = json.loads(path.read_bytes())
        since = content["since_step"]
        return float(content["wall"]), math.inf if since is None else float(since), str(content["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None, math.inf, ""  # the file does not exist yet, or is torn
