"""A directory whose every change is recorded, and what of it is left when everything stops after the n-th of them.

Two ways to stop: the process ends (all that was written stays), or the power goes (what was not synced stays in part:
any of the writes, any of the names, one write torn at any byte). That is what POSIX allows; file systems are kinder.
"""

from __future__ import annotations

import errno
import os
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    import pytest


class Change(NamedTuple):
    """`kind`: create, write, cut, sync of a file; names (synced), unlink, rename; mark: a note of the test's own."""

    kind: str
    inode: int = 0
    name: str = ""
    other: str = ""
    offset: int = 0
    data: bytes = b""
    note: tuple[Any, ...] = ()


class Recorder:
    """Stands between the code and `os` for one directory; `refuse` makes the next call of that name fail, once."""

    def __init__(self, directory: Path, patch: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.changes: list[Change] = []
        self.refuse: dict[str, int] = {}
        self._names: dict[str, int] = {}
        self._descriptors: dict[int, tuple[int, bool]] = {}  # inode, 0 for a directory; whether it appends
        self._places: dict[int, int] = {}  # of descriptors that write without an offset
        self._lock = threading.RLock()
        self._count = 0
        for name in ("open", "close", "write", "pwrite", "ftruncate", "fsync", "fdatasync", "unlink", "rename"):
            patch.setattr(os, name, self._between(name, getattr(os, name)))
        patch.setattr(os, "posix_fallocate", self._between("fallocate", os.posix_fallocate))

    def mark(self, *note: Any) -> None:
        self.changes.append(Change("mark", note=note))

    def _between(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        record = getattr(self, f"_{name}")

        def call(*given: Any, **more: Any) -> Any:
            with self._lock:
                if not self._is_ours(given[0]):
                    return real(*given, **more)
                if name in self.refuse:
                    code = self.refuse.pop(name)
                    raise OSError(code, os.strerror(code))
                existed = not isinstance(given[0], int) and os.path.lexists(given[0])
                result = real(*given, **more)
                record(result, existed, *given)
                return result

        return call

    def _is_ours(self, what: Any) -> bool:
        return what in self._descriptors if isinstance(what, int) else self._name(what) is not None

    def _name(self, path: Any) -> str | None:
        text, root = os.fspath(path), str(self.directory)
        if text == root:
            return ""
        return text[len(root) + 1 :] if isinstance(text, str) and text.startswith(f"{root}/") else None

    def _open(self, descriptor: int, existed: bool, path: Any, flags: int, *_: Any) -> None:  # noqa: FBT001
        name = self._name(path)
        assert name is not None
        if flags & os.O_DIRECTORY:
            self._descriptors[descriptor] = (0, False)
            return
        if not existed:
            self._count += 1
            self._names[name] = self._count
            self.changes.append(Change("create", self._count, name))
        self._descriptors[descriptor] = (self._names[name], bool(flags & os.O_APPEND))
        self._places[descriptor] = 0
        if existed and flags & os.O_TRUNC:
            self.changes.append(Change("cut", self._names[name]))

    def _close(self, _: None, __: bool, descriptor: int) -> None:  # noqa: FBT001
        del self._descriptors[descriptor]
        self._places.pop(descriptor, None)

    def _write(self, count: int, _: bool, descriptor: int, data: Any) -> None:  # noqa: FBT001
        inode, appends = self._descriptors[descriptor]
        offset = os.fstat(descriptor).st_size - count if appends else self._places[descriptor]
        self._places[descriptor] = offset + count
        self.changes.append(Change("write", inode, offset=offset, data=bytes(data[:count])))

    def _pwrite(self, count: int, _: bool, descriptor: int, data: Any, offset: int) -> None:  # noqa: FBT001
        self.changes.append(Change("write", self._descriptors[descriptor][0], offset=offset, data=bytes(data[:count])))

    def _fallocate(self, _: None, __: bool, descriptor: int, ___: int, length: int) -> None:  # noqa: FBT001
        self.changes.append(Change("write", self._descriptors[descriptor][0], offset=length))

    def _ftruncate(self, _: None, __: bool, descriptor: int, length: int) -> None:  # noqa: FBT001
        self.changes.append(Change("cut", self._descriptors[descriptor][0], offset=length))

    def _fsync(self, _: None, __: bool, descriptor: int) -> None:  # noqa: FBT001
        inode, _appends = self._descriptors[descriptor]
        self.changes.append(Change("sync", inode) if inode else Change("names"))

    _fdatasync = _fsync

    def _unlink(self, _: None, __: bool, path: Any) -> None:  # noqa: FBT001
        name = self._name(path)
        assert name is not None
        del self._names[name]
        self.changes.append(Change("unlink", name=name))

    def _rename(self, _: None, __: bool, path: Any, to: Any) -> None:  # noqa: FBT001
        name, other = self._name(path), self._name(to)
        assert name is not None
        assert other is not None
        self._names[other] = inode = self._names.pop(name)
        self.changes.append(Change("rename", inode, name, other))


class Disk:
    """What a prefix of the changes left, and what of it was durable."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._files: dict[int, bytearray] = {}
        self._durable_names: dict[str, int] = {}
        self._durable: dict[int, bytes] = {}
        self._loose_names: list[Change] = []
        self._loose: dict[int, list[Change]] = {}

    def apply(self, change: Change) -> None:
        match change.kind:
            case "sync":
                self._durable[change.inode] = bytes(self._files[change.inode])
                self._loose.pop(change.inode, None)
            case "names":
                self._durable_names = dict(self._names)
                self._loose_names.clear()
            case "write" | "cut":
                _alter(self._files[change.inode], change)
                self._loose.setdefault(change.inode, []).append(change)
            case "create" | "unlink" | "rename":
                if change.kind == "create":
                    self._files[change.inode] = bytearray()
                _rename(self._names, change)
                self._loose_names.append(change)

    def after_kill(self) -> dict[str, bytes]:
        """The process ended: the system keeps everything."""
        return {name: bytes(self._files[inode]) for name, inode in self._names.items()}

    def after_power_cut(self, chance: random.Random | None) -> dict[str, bytes]:
        """The power went: what was not synced is lost, or with `chance` there in part."""
        names, files = dict(self._durable_names), {}
        for change in self._loose_names:
            if chance is not None and chance.random() < 0.5:
                _rename(names, change)
        for inode in sorted(set(names.values())):
            content = files[inode] = bytearray(self._durable.get(inode, b""))
            loose = self._loose.get(inode, [])
            torn = chance.randrange(len(loose) + 1) if chance is not None else 0
            for at, change in enumerate(loose):
                if chance is not None and at == torn:
                    _alter(content, change._replace(data=change.data[: chance.randrange(len(change.data) + 1)]))
                elif chance is not None and chance.random() < (0.95 if at < torn else 0.3):
                    _alter(content, change)
        return {name: bytes(files[inode]) for name, inode in names.items()}


def put(directory: Path, files: dict[str, bytes]) -> None:
    """Make a directory with these files."""
    directory.mkdir()
    for name, content in files.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_bytes(content)


def _alter(content: bytearray, change: Change) -> None:
    if change.kind == "cut":
        del content[change.offset :]
    end = change.offset + len(change.data)
    content.extend(bytes(max(0, end - len(content))))
    content[change.offset : end] = change.data


def _rename(names: dict[str, int], change: Change) -> None:
    if change.kind == "create":
        names[change.name] = change.inode
        return
    names.pop(change.name, None)
    if change.kind == "rename":
        names[change.other] = change.inode


FULL = errno.ENOSPC
