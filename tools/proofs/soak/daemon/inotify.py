"""Watch of a few folders with inotify, which reports changes within a fraction of a millisecond.

In: existing folders. Out: the names of files that were created in them or moved into them, in order. Polling would be
too slow, because only a few milliseconds pass between two files of a micro-batch.
"""

from __future__ import annotations

import ctypes
import os
import select
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MOVED_TO = 0x80
CREATE = 0x100
OVERFLOW = 0x4000
_HEAD = struct.Struct("iIII")
_READ_BYTES = 1 << 16


class Event(NamedTuple):
    """`kind` is MOVED_TO or CREATE."""

    folder: Path
    kind: int
    name: str


class Watch:
    """`with Watch(folder, …) as watch: for event in watch.events(10): …`."""

    def __init__(self, *folders: Path) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._descriptor = library.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self._folders: dict[int, Path] = {}
        for folder in folders:
            number = library.inotify_add_watch(self._descriptor, os.fsencode(folder), MOVED_TO | CREATE)
            if number < 0:
                raise OSError(ctypes.get_errno(), f"cannot watch {folder}")
            self._folders[number] = folder

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def events(self, timeout_s: float) -> Iterator[Event]:
        """Until the time is over, or the caller has seen enough."""
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._descriptor], [], [], left)[0]:
                return
            data = os.read(self._descriptor, _READ_BYTES)
            offset = 0
            while offset < len(data):
                number, kind, _, size = _HEAD.unpack_from(data, offset)
                name = data[offset + _HEAD.size : offset + _HEAD.size + size].rstrip(b"\0")
                offset += _HEAD.size + size
                assert not kind & OVERFLOW, "more happened in the folders than the kernel keeps for a watcher"
                yield Event(self._folders[number], kind & (MOVED_TO | CREATE), os.fsdecode(name))
