"""Registered readers of a relay log, whose files retention keeps.

`readers/<name>.json` holds the location from which a reader must be able to continue. The file's modification time says
when the reader was last seen. If retention has to remove files that a reader needs, it writes `readers/<name>.dropped`.
The reader checks this mark before it continues.

The writer creates the folder with mode 1770. Members of the relay directory's group may write there, each user only
their own files. A reader of another user must therefore be in the group. Registrations are readable for every user with
access to the directory, so the writer need not be in a reader's group. Files are replaced by rename, without fsync,
because a power cut ends the readers too and they register again. Torn and foreign files are ignored, with the reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from replica.errors import ConfigError, DataLossError, RelayError
from replica.relay_log.directory.disk import replace_file
from replica.relay_log.directory.head import read_head
from replica.relay_log.location import RelayLocation, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

READERS_NAME: Final = "readers"
VERSION: Final = 1
MAX_READERS: Final = 1000  # several per query; more mean that a reader uses a new name at each start
_MAX_NAME_BYTES: Final = 200  # a file name has at most 255
_MAX_FILE_BYTES: Final = 128 << 10  # enough for the text of a position with 4096 domains
_MODE: Final = 0o1770
_FILE_MODE: Final = 0o644


class Reader(NamedTuple):
    """Registration of a reader.

    Attributes:
        name: Name of the reader.
        location: Location from which the reader may continue.
        position: GTID position of the location.
        seen: Time of the last contact, in seconds since 1970 by this machine's clock.
    """

    name: str
    location: RelayLocation
    position: str
    seen: float


class RegisteredReaders(NamedTuple):
    """Readers of a folder.

    `ignored` has the reason why a file is no registration, by file name.
    """

    readers: list[Reader]
    ignored: dict[str, str]


class ReaderRegistration:
    """Registration of one reader, which begins with the first `keep_from`. Two readers must not share a name."""

    def __init__(self, directory: Path, name: str) -> None:
        """Create a registration; ConfigError if the name is empty or too long for a file name."""
        self.name = name
        self._directory = directory
        self._path = directory / READERS_NAME / f"{_file_stem(name)}.json"
        self._last: tuple[RelayLocation, str] | None = None

    def keep_from(self, location: RelayLocation, position: str) -> None:
        """Keep the log from `location` on, and release everything before it.

        Raises:
            DataLossError: Retention has removed the file of `location`.
            RelayError: The user may not write there, or the disk is full.
        """
        content = {
            "version": VERSION,
            "name": self.name,
            "file": location.file,
            "offset": location.offset,
            "position": position,
        }
        # Only at the first call, a removal that does not know this reader may be running.
        first = self._last is None
        with self._writing(), _locked(self._directory, fcntl.LOCK_SH) if first else contextlib.nullcontext():
            replace_file(self._path, json.dumps(content).encode(), mode=_FILE_MODE)
            removed = first and _is_removed(self._directory, location)
            dropped = _dropped(self._path)
            if removed or (dropped is not None and location.file < dropped.file):
                self._path.unlink(missing_ok=True)  # this reader cannot continue, so nothing may be kept for it
                raise self._lost(location.file, dropped)
            with contextlib.suppress(PermissionError):  # the mark belongs to another user, who removes it later
                _dropped_path(self._path).unlink(missing_ok=True)
        self._last = (location, position)

    def touch(self) -> None:
        """Report that this reader is alive; cheap enough for a call every few seconds.

        Raises:
            DataLossError: As in `check`.
            RelayError: The user may not write there.
        """
        self.check()
        with self._writing(), contextlib.suppress(FileNotFoundError):
            os.utime(self._path)
            return
        if self._last is not None:  # the registration has expired, because the reader was not seen for very long
            last, self._last = self._last, None
            self.keep_from(*last)

    def check(self) -> None:
        """Raise DataLossError if retention has removed files that this reader still needs."""
        dropped = _dropped(self._path)
        if dropped is not None and (self._last is None or self._last[0].file < dropped.file):
            raise self._lost(None, dropped)

    def close(self) -> None:
        """Remove the registration of a reader that will not return, so that nothing is kept for it."""
        with self._writing():
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(PermissionError):
                _dropped_path(self._path).unlink(missing_ok=True)
        self._last = None

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        folder = self._path.parent
        try:
            make_readers_directory(self._directory)
            yield
        except PermissionError as error:
            raise RelayError(
                f"This user ({os.geteuid()}) may not register the reader {self.name!r} in {folder}: {error.strerror}.",
                hint="Put it into the group of that folder, or run it as the user of the replica.",
            ) from error
        except OSError as error:
            raise RelayError(
                f"The reader {self.name!r} cannot be registered in {folder}: {error.strerror or error}.",
                hint="Free space there, or repair the folder.",
            ) from error

    def _lost(self, number: int | None, dropped: _Dropped | None) -> DataLossError:
        what = f"relay.{number:06d} is" if number is not None else "Relay files are"
        why = f": {dropped.reason}" if dropped is not None else ""
        return DataLossError(
            f"{what} no longer there for the reader {self.name!r}{why}.",
            hint="Raise relay_max_bytes of the replica, or set its slow_readers=pause; then start this reader again.",
        )


class _Dropped(NamedTuple):
    file: int
    reason: str


def make_readers_directory(directory: Path) -> None:
    """Create the folder with its mode; an existing folder gets the directory's group. OSErrors are passed on."""
    folder = directory / READERS_NAME
    if not folder.is_dir():
        with contextlib.suppress(FileExistsError):
            folder.mkdir(0o700)
            _follow_group(folder, directory)
            folder.chmod(_MODE)
    elif not folder.is_symlink():
        _follow_group(folder, directory)


def _follow_group(folder: Path, directory: Path) -> None:
    group = directory.stat().st_gid
    if folder.stat().st_gid != group:
        with contextlib.suppress(PermissionError):  # the process is not in the group, or does not own the folder
            os.chown(folder, -1, group)


def registered_readers(directory: Path) -> list[Reader]:
    """Return the readers of a relay directory, sorted by file name."""
    return survey_readers(directory).readers


def survey_readers(directory: Path) -> RegisteredReaders:
    """Return the readers of a relay directory and the ignored files in the folder.

    Raises:
        RelayError: There are more than MAX_READERS files.
    """
    readers, ignored = [], {}
    try:
        names = sorted(entry.name for entry in (directory / READERS_NAME).iterdir())
    except FileNotFoundError:
        return RegisteredReaders([], {})
    names = [name for name in names if name.endswith(".json")]
    if len(names) > MAX_READERS:
        raise RelayError(
            f"More than {MAX_READERS} readers are registered in {directory / READERS_NAME}.",
            hint="Remove the files of readers that no longer exist, and give a reader the same name at each start.",
        )
    for name in names:
        try:
            readers.append(_read(directory / READERS_NAME / name))
        except FileNotFoundError:
            continue  # the reader has just ended
        except (OSError, ValueError, KeyError, RecursionError, ConfigError) as error:
            ignored[name] = str(error) or type(error).__name__
    return RegisteredReaders(readers, ignored)


def mark_dropped(directory: Path, reader: Reader, oldest: int, reason: str) -> None:
    """Mark a reader as dropped, before its files are removed: the log will start with file `oldest`.

    OSErrors are passed on.
    """
    path = directory / READERS_NAME / f"{_file_stem(reader.name)}.json"
    content = {"version": VERSION, "file": oldest, "reason": reason}
    replace_file(_dropped_path(path), json.dumps(content).encode(), mode=_FILE_MODE)
    path.unlink(missing_ok=True)


def forget_reader(directory: Path, reader: Reader) -> None:
    """Remove the registration of a reader that will not return. OSErrors are passed on."""
    (directory / READERS_NAME / f"{_file_stem(reader.name)}.json").unlink(missing_ok=True)


def forget_marks(directory: Path, before: float) -> None:
    """Remove the marks of dropped readers that have not returned since `before`. OSErrors are passed on."""
    for path in (directory / READERS_NAME).glob("*.dropped"):
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_mtime < before:
                path.unlink()


@contextlib.contextmanager
def removal_lock(directory: Path) -> Iterator[None]:
    """Hold the lock during the choice and removal of files; BlockingIOError while a reader is registering."""
    with _locked(directory, fcntl.LOCK_EX | fcntl.LOCK_NB):
        yield


@contextlib.contextmanager
def _locked(directory: Path, how: int) -> Iterator[None]:
    descriptor = os.open(directory / READERS_NAME, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def _file_stem(name: str) -> str:
    stem = quote(name, safe=" ").replace(".", "%2E") if name else ""
    if not stem or len(stem) > _MAX_NAME_BYTES:
        raise ConfigError(
            f"The reader's name {name[:50]!r} is empty or too long for a file name.",
            hint=f"At most {_MAX_NAME_BYTES} letters and digits; other characters count three or more.",
        )
    return stem


def _dropped_path(path: Path) -> Path:
    return path.with_suffix(".dropped")


def _load(path: Path) -> tuple[dict[str, object], float]:
    # The flags refuse a link, and do not wait for the writer of a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_FILE_BYTES:
            raise ValueError("it is not a file, or too large for a registration")
        content = json.loads(os.read(descriptor, _MAX_FILE_BYTES))
    finally:
        os.close(descriptor)
    if not isinstance(content, dict) or content.get("version") != VERSION:
        raise ValueError(f"it is not a registration of version {VERSION}")
    return content, status.st_mtime


def _read(path: Path) -> Reader:
    content, seen = _load(path)
    name, position = str(content["name"]), str(content["position"])
    location = RelayLocation(int(str(content["file"])), int(str(content["offset"])))
    if f"{_file_stem(name)}.json" != path.name:
        raise ValueError(f"it belongs to the reader {name!r}")
    return Reader(name, location, position, seen)


def _dropped(path: Path) -> _Dropped | None:
    try:
        content, _ = _load(_dropped_path(path))
        return _Dropped(int(str(content["file"])), str(content["reason"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, RecursionError):
        return _Dropped(1 << 62, "retention marked it as dropped, but the mark is unreadable")


def _is_removed(directory: Path, location: RelayLocation) -> bool:
    """Return True if the log has reached the file of `location` and the file does not exist any more."""
    head = read_head(directory)
    reached = head is not None and RelayLocation(location.file, 0) < head.location
    return reached and not relay_path(directory, location.file).exists()
