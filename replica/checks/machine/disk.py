"""Checks of the relay log's disk: its file system, its free space, and the duration of a write."""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from replica.checks.machine.local import existing, writable
from replica.checks.result import Result
from replica.daemon.status.words import size
from replica.relay_log.location import relay_numbers, relay_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from replica.daemon.config import DaemonConfig

MOUNTS = Path("/proc/self/mounts")
_IN_MEMORY = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")
SYNCS = 15
"""Number of fdatasync calls. They take a tenth of a second on a rotating disk."""
SLOW_SYNC_S = 0.02


def disk(config: DaemonConfig, directory: Path) -> Iterator[Result]:
    """Check the disk. A directory that cannot be written gives no finding here, because another check reports it."""
    place = existing(directory)
    if not writable(place):
        return
    kind = _file_system(place)
    if kind in _IN_MEMORY:
        what = f"{place} is in memory ({kind}): a power cut destroys all of it, acknowledged transactions too"
        yield Result("file system", "warning", what, "put relay_dir on a disk")
    elif kind in _REMOTE:
        what = f"{place} is on another machine ({kind}): its locks and its fsync decide what an acknowledgement means"
        yield Result("file system", "warning", what, "put relay_dir on a local disk")
    yield _space(config, place, _relay_bytes(directory))
    if config.semi_sync and config.ack_policy == "fsync":
        yield _speed(place)
    if config.retain_bytes + 2 * config.relay_max_file_bytes > config.relay_max_bytes:
        limits = f"retain_bytes ({size(config.retain_bytes)}) is not well below relay_max_bytes"
        then = "receiving may stop before a file may be removed"
        if config.slow_readers == "drop":
            then = "the relay log may grow beyond it, and no space is left for slow readers"
        fix = "set relay_max_bytes to at least twice retain_bytes"
        yield Result("retain_bytes", "warning", f"{limits} ({size(config.relay_max_bytes)}): {then}", fix)


def _space(config: DaemonConfig, place: Path, have: int) -> Result:
    free = shutil.disk_usage(place).free
    words = f"{size(free)} free, the relay log has {size(have)}"
    if free < config.min_free_bytes:
        what = f"{words}: less than min_free_bytes ({size(config.min_free_bytes)}), so nothing would be received"
        return Result("disk", "missing", what, "make room, or set a smaller min_free_bytes")
    most = max(config.relay_max_bytes, config.retain_bytes)
    if free - config.min_free_bytes < most - have:
        what = f"{words}: the disk is nearly full before the relay log reaches its limit ({size(most)})"
        return Result("disk", "warning", what, "make room, or set smaller retain_bytes and relay_max_bytes")
    return Result("disk", "ok", words)


def _speed(place: Path) -> Result:
    taken = []
    try:
        # Without a name, so that no file remains in any case.
        with tempfile.TemporaryFile(dir=place) as file:
            for _ in range(SYNCS):
                file.write(bytes(512))
                file.flush()
                began = time.perf_counter()
                os.fdatasync(file.fileno())
                taken.append(time.perf_counter() - began)
    except OSError as error:
        return Result(
            "disk speed", "warning", f"a file in {place} cannot be written: {error.strerror}", "check the disk"
        )
    typical, worst = statistics.median(taken), max(taken)
    what = (
        f"fdatasync takes {typical * 1000:.2f} ms, at most {worst * 1000:.2f} ms: every commit waits at least that long"
    )
    if typical > SLOW_SYNC_S:
        return Result(
            "disk speed", "warning", what, "put relay_dir on a faster disk (an SSD with power-loss protection)"
        )
    return Result("disk speed", "ok", what)


def _relay_bytes(directory: Path) -> int:
    if not directory.is_dir():
        return 0
    total = 0
    for number in relay_numbers(directory):
        with contextlib.suppress(FileNotFoundError):  # retention may be faster
            total += relay_path(directory, number).stat().st_size
    return total


def _file_system(place: Path) -> str:
    """Return the type of a directory's file system, as in /proc/mounts; '' if that file does not exist."""
    best, kind = "", ""
    with contextlib.suppress(OSError), MOUNTS.open(encoding="utf-8", errors="replace") as mounts:
        target = str(place.resolve())
        for line in mounts:
            _, mounted, this, *_ = line.split(" ")
            at = mounted.replace("\\040", " ")
            if (target == at or target.startswith(at.rstrip("/") + "/")) and len(at) >= len(best):
                best, kind = at, this
    return kind
