"""Checks of this machine: relay directory, listening address, compiled kernels, readable passwords, limits."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from replica.checks.result import Result
from replica.native.compiling.code_cache import CACHE, stamp
from replica.options.client import option_file_password
from replica.options.secrets import exposed
from replica.relay_log.directory.access import open_to_others

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from replica.daemon.config import DaemonConfig

ENOUGH_DESCRIPTORS = 256
"""Sufficient number of file descriptors. A daemon with ten readers of /metrics and a failover uses about 40."""


def local(config: DaemonConfig, holder: str | None) -> Iterator[Result]:
    """Check this machine. `holder` is the id of the process that writes the relay directory now, or None."""
    if config.relay_dir is None:
        what = "no relay_dir given: run needs one, and its disk was not checked"
        yield Result("relay_dir", "note", what, "set relay_dir")
    else:
        yield from _directory(config.relay_dir, holder)
        yield from _open_to_others(config.relay_dir)
    if config.http_listen is not None:
        yield _listening(config.http_listen, holder)
    yield kernels()
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < ENOUGH_DESCRIPTORS:
        what = f"this process may open {soft} files"
        yield Result("descriptors", "warning", what, "LimitNOFILE=1024 in the systemd unit, or ulimit -n 1024")
    else:
        yield Result("descriptors", "ok", f"this process may open {soft} files")


def kernels() -> Result:
    """Check whether the code that a replica needs is compiled for this machine, or will be at the first start."""
    if CACHE is None:
        what = "no writable folder for compiled kernels: each start compiles them again"
        return Result("kernels", "warning", what, "set NUMBA_CACHE_DIR to a folder of this user")
    if stamp(Path(CACHE)).exists():
        return Result("kernels", "ok", f"compiled, in {CACHE}")
    what = "not compiled for this version and processor yet: the first start compiles them before it connects"
    return Result("kernels", "note", what, "python -m replica.native.warm")


def existing(directory: Path) -> Path:
    """Return the directory, or its deepest ancestor that can be seen."""
    # Path.exists raises an error if an ancestor may not be entered.
    while not os.path.exists(directory) and directory != directory.parent:  # noqa: PTH110
        directory = directory.parent
    return directory


def writable(place: Path) -> bool:
    """Return True if this process can create files in the directory."""
    return place.is_dir() and os.access(place, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def secrets(config: DaemonConfig, sources: Mapping[str, str]) -> Iterator[Result]:
    """Check whether others on this machine can read the password.

    Args:
        config: the options.
        sources: option name -> origin of its value.
    """
    source = sources.get("password", "")
    if source.startswith("--"):
        what = "it is on the command line, where every user of this machine can see it"
        yield Result("password", "warning", what, "set password_file, or MARIADB_REPLICA_PASSWORD in the environment")
    files = [config.password_file, config.tls_key, Path(source) if "/" in source else None]
    if config.defaults_file is not None and option_file_password(config.defaults_file) is not None:
        files.append(config.defaults_file)
    for what in exposed(files):
        yield Result("password", "warning", what.partition(": ")[0], what.partition(": ")[2])


def _directory(directory: Path, holder: str | None) -> Iterator[Result]:
    place = existing(directory)
    if not writable(place):
        what = f"{place} is {'not writable by this user' if place.is_dir() else 'not a directory'}"
        fix = f"install -d -o {_user()} {directory} (as root)"
        yield Result("relay_dir", "missing", what, fix)
        return
    if holder is not None:
        yield Result("relay_dir", "note", f"{directory} is in use by process {holder}: a replica runs there already")
    elif place != directory:
        yield Result("relay_dir", "ok", f"{directory} will be created at the first start")
    else:
        yield Result("relay_dir", "ok", f"{directory} is writable")


def _open_to_others(directory: Path) -> Iterator[Result]:
    """Check a directory's permissions. One that does not exist, or that only its group can read, gives no finding."""
    with contextlib.suppress(OSError):
        if open_to_others(directory):
            what = f"every user of this machine can read {directory}, and with it the rows of every table"
            fix = f"relay_access=group (or owner, group:NAME), and chmod o-rwx {directory}"
            yield Result("relay_access", "warning", what, fix)


def _listening(address: tuple[str, int], holder: str | None) -> Result:
    host, port = address
    shown = f"{host or '*'}:{port}"
    try:
        both = not host and socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if both or ":" in host else socket.AF_INET
        with contextlib.closing(socket.create_server(address, family=family, dualstack_ipv6=both)):
            return Result("http_listen", "ok", f"{shown} is free")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and holder is not None:
            return Result("http_listen", "note", f"{shown} is in use, by the replica that runs if all is well")
        fix = "set another http_listen, or stop the program that listens there"
        return Result("http_listen", "missing", f"{shown} cannot be listened on: {os.strerror(error.errno or 0)}", fix)


def _user() -> str:
    return str(os.geteuid())
