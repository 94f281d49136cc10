"""Clean room: a bare Debian as a separate machine, with a copy of this project and nothing else of this machine.

In: the files below, and commands that run in the room. Out: the output of a command, its exit code, its duration in
seconds. A room can be an overlay of another one, so that a slow setup runs only once. A room needs root, debootstrap
and the kernel's overlay file system. If one of them is missing, an error is raised, because a skipped room proves
nothing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from tests.fixtures.installation import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

HERE = Path(__file__).parent
CACHE = PROJECT / ".cache" / "rooms"
PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "PIP_INDEX_URL", "PIP_CERT", "SSL_CERT_FILE")
"""Variables of this machine's environment with the addresses of package servers and proxies, if they are set."""
LIMIT_S = 2400
"""Longest run of a room on a busy machine, including all installations."""


class Ran(NamedTuple):
    """What a command in a room did: its exit code, all it printed, and its seconds."""

    code: int
    text: str
    seconds: float


class Room:
    """A tree of files over others. Use as a context manager: its files are removed at the end."""

    def __init__(self, *below: Path) -> None:
        CACHE.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="room-", dir=CACHE))
        for name in ("up", "work", "root"):
            (self.folder / name).mkdir()
        self._below = below

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)

    @property
    def files(self) -> tuple[Path, ...]:
        """What a room over this one lies on, the highest first."""
        return self.folder / "up", *self._below

    def add_project(self, folder: str = "/root/project", *, owner: str = "root") -> None:
        """Copy the files that git knows into the room, as a clone would have them."""
        target = self.folder / "up" / folder.lstrip("/")
        target.mkdir(parents=True)
        names = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, check=True).stdout
        for name in filter(None, names.decode().split("\0")):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, target / name, follow_symlinks=False)
        self.run(f"chown -R {owner}:{owner} {shlex.quote(folder)}", folder="/")

    def run(
        self,
        command: str,
        *,
        person: str = "root",
        folder: str = "/root/project",
        home: str | None = None,
        home_is_locked: bool = False,
        alone: bool = False,
        memory_bytes: int | None = None,
        limit_s: float = LIMIT_S,
    ) -> Ran:
        """Run a line of shell as somebody; `alone`: without a network."""
        begin = time.monotonic()
        environment = {name: os.environ[name] for name in ("PATH", *PASSED_ON) if name in os.environ} | {
            "ROOM": str(self.folder),
            "BELOW": ":".join(map(str, self._below)),
            "PERSON": person,
            "HOME_THERE": home or ("/root" if person == "root" else f"/home/{person}"),
            "FOLDER": folder,
            "LOCKED": str(int(home_is_locked)),
            "ALONE": str(int(alone)),
        }
        spaces = ["--mount", "--pid", "--uts", "--ipc", *(["--net"] if alone else [])]
        own = ["unshare", *spaces, "--fork", "--kill-child", "--propagation", "private", str(HERE / "enter")]
        with _limited(memory_bytes) as within:
            done = subprocess.run(
                [*within, *own, "sh", "-c", command],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=limit_s,
                check=False,
            )
        return Ran(done.returncode, done.stdout, time.monotonic() - begin)


def base(suite: str = "bookworm") -> Path:
    """Return the bare Debian of a suite, which is made if it is not there."""
    folder = CACHE / suite
    if not (folder / ".ready").exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        subprocess.run([HERE / "make-base", suite, folder], check=True)
    return folder


@contextmanager
def _limited(memory_bytes: int | None) -> Iterator[Sequence[str]]:
    """Yield the beginning of a command that gets no more memory than this, files it reads included."""
    if memory_bytes is None:
        yield ()
        return
    one = Path("/sys/fs/cgroup/memory")
    group = (one if one.exists() else Path("/sys/fs/cgroup")) / f"room-{os.getpid()}"
    group.mkdir()
    try:
        (group / ("memory.limit_in_bytes" if one.exists() else "memory.max")).write_text(str(memory_bytes))
        yield "sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "_"
    finally:
        group.rmdir()
