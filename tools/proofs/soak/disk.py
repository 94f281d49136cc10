"""Separate disk for the daemon's relay log, small enough to be filled: a tmpfs, if this process may mount one.

`fill` takes all free space but a few KB at once, as another program on a shared disk would. `free` releases the space.
If mounting is refused (no root, no namespace), an ordinary folder is used, `can_fill` is False, and the summary says
so.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from pathlib import Path

DISK_BYTES = 512 << 20
"""A dozen times what the daemon is told to retain: it is full because somebody fills it, not by itself."""
FILL_STEP_BYTES = 64 << 20
SMALLEST_STEP_BYTES = 4096
"""A page: what is left below that cannot be had."""


class SmallDisk:
    """`with SmallDisk(folder) as disk: disk.path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.can_fill = False

    def __enter__(self) -> Self:
        self.path.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "soak", str(self.path)]
        self.can_fill = subprocess.run(command, capture_output=True, check=False).returncode == 0
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if self.can_fill:
            if kind is not None:
                self.free()
                shutil.copytree(self.path, self.path.with_name("disk-kept"))
            subprocess.run(["umount", "-l", str(self.path)], check=True)

    def fill(self, leave_bytes: int) -> None:
        """Leave about `leave_bytes`; the writer beside us may take some of it first."""
        step, place = FILL_STEP_BYTES, 0
        with (self.path / "ballast").open("ab") as file:
            while step >= SMALLEST_STEP_BYTES:
                free = os.statvfs(self.path)
                wanted = min(step, free.f_bavail * free.f_bsize - leave_bytes)
                if wanted <= 0:
                    return
                try:
                    os.posix_fallocate(file.fileno(), place, wanted)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
                    step //= 4  # the writer beside us was quicker
                else:
                    place += wanted

    def free(self) -> None:
        (self.path / "ballast").unlink(missing_ok=True)
