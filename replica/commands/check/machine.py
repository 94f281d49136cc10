"""Checks of this machine: relay directory, disk, listening address, Spark, compiled kernels.

`local`, `disk` and `secrets` check what a daemon with this configuration would use. `relay_end` returns the end of its
relay log. `spark_report` checks the interpreter and the Java in which a Spark would start. No check changes anything,
and each finding names the command or setting that fixes it.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from replica.commands.check.report import Report, Result
from replica.daemon.run import START_KEYWORDS, last_known, lost
from replica.daemon.status.page import size
from replica.errors import InstallationError
from replica.handshake.start.resume import Stored
from replica.native.compiling.code_cache import CACHE, stamp
from replica.options.file import exposed, option_file_password
from replica.relay_log.directory.disk import open_to_others
from replica.relay_log.directory.head import read_head
from replica.relay_log.directory.identity import source_of
from replica.relay_log.files.lookup import read_file_head
from replica.relay_log.location import RelayHead, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from replica.relay_log.walks.last_event import fingerprint_at
from replica.version import __version__

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


MOUNTS = Path("/proc/self/mounts")
_IN_MEMORY = ("tmpfs", "ramfs")
_REMOTE = ("nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs")
SYNCS = 15
"""Number of fdatasync calls. They take a tenth of a second on a rotating disk."""
SLOW_SYNC_S = 0.02


def disk(config: DaemonConfig, directory: Path) -> Iterator[Result]:
    """Check the disk of the relay log in `directory`.

    A directory that cannot be written gives no finding here, because another check reports it.
    """
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
    text = f"{size(free)} free, the relay log has {size(have)}"
    if free < config.min_free_bytes:
        what = f"{text}: less than min_free_bytes ({size(config.min_free_bytes)}), so nothing would be received"
        return Result("disk", "missing", what, "make room, or set a smaller min_free_bytes")
    most = max(config.relay_max_bytes, config.retain_bytes)
    if free - config.min_free_bytes < most - have:
        what = f"{text}: the disk is nearly full before the relay log reaches its limit ({size(most)})"
        return Result("disk", "warning", what, "make room, or set smaller retain_bytes and relay_max_bytes")
    return Result("disk", "ok", text)


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


class RelayEnd(NamedTuple):
    """The last published group, and the stored position that a server is checked against."""

    head: RelayHead
    stored: Stored


def relay_end(directory: Path, start: str) -> RelayEnd | None:
    """Return the end of the relay log.

    None means that no group was written yet, or that the files are lost and `start` is a position to continue from.

    Raises:
        RelayError: the record or its relay file cannot be read, or the files are lost and `start` is a keyword.
        FileNotFoundError: the relay file of the record was removed, and others exist.
    """
    if directory.is_dir() and not relay_numbers(directory):
        known = last_known(directory)
        if known is not None:
            if start in START_KEYWORDS:
                raise lost(directory, known)
            return None
    head = read_head(directory)
    if head is None:
        return None
    if not head.location.offset:
        return RelayEnd(head, Stored(head.position)) if head.position else None
    writer = read_file_head(relay_path(directory, head.location.file)).server_id
    uid, last = source_of(directory, head.location.file), fingerprint_at(RelayLog(directory), head.location)
    return RelayEnd(head, Stored(head.position, head.primary, writer, uid=uid, last=last))


# Spark's data source runs in PYSPARK_DRIVER_PYTHON, else PYSPARK_PYTHON, else the first `python3` on the PATH (tested
# with 4.2.1). The check runs that interpreter in a process of its own. If it lacks this package, Spark itself reports
# only DATA_SOURCE_NOT_FOUND.


VARIABLE: Final = "PYSPARK_PYTHON"
DRIVER_VARIABLE: Final = "PYSPARK_DRIVER_PYTHON"
"""Variable for the driver's interpreter. Its value is often a notebook program, with which Spark cannot run a data
source.
"""
ANSWER_S: Final = 60.0
"""Timeout in seconds for an interpreter to import all packages on a busy machine."""
OLDEST_JAVA: Final = 17
_OURS: Final = ("pyspark_mariadb_binlog", "replica", "streaming_source")
_PROBE: Final = """
import json, sys
answer = {"python": ".".join(map(str, sys.version_info[:3]))}
try:
    import pyspark
    answer["spark"] = pyspark.__version__
    import pyspark_mariadb_binlog, replica.version, streaming_source
    answer["package"] = replica.version.__version__
    import numba, pandas, pyarrow
    from streaming_source.driver.spark_border import SPARK_VERSIONS, require_spark
    answer["refused"] = getattr(pyspark_mariadb_binlog.DefaultSource, "reason", "")
    answer["newest"] = SPARK_VERSIONS[-1].name
    require_spark(pyspark.__version__)
except ImportError as error:
    answer["lacks"], answer["refused"] = error.name, str(error)
except Exception as error:
    answer["refused"] = str(error)
print(json.dumps(answer))
"""


def spark_report(environment: Mapping[str, str]) -> Report:
    """Return the report on the environment in which a Spark would start."""
    report = Report("Spark on this machine", purpose="run in Spark")
    report.results += [*_python(environment), _java(environment)]
    if report.missing:
        one = report.missing[0]
        report.error = InstallationError(f"{one.what}.", hint=f"Fix: {one.fix}.")
    return report


def _python(environment: Mapping[str, str]) -> Iterator[Result]:
    """Check the interpreter and its packages."""
    variable = DRIVER_VARIABLE if environment.get(DRIVER_VARIABLE) else VARIABLE
    named = environment.get(variable, "")
    fix = _use_ours(variable)
    found = shutil.which(named or "python3", path=environment.get("PATH"))
    whose = f"{variable} is {named}" if named else f"{VARIABLE} is not set, so Spark starts the python3 on the PATH"
    if variable != VARIABLE:
        whose += f", which Spark takes before {VARIABLE}"
    if found is None:
        what = f"{whose}, and there is no such program" if named else f"{whose}, and there is none"
        yield Result(variable, "missing", what, fix)
        return
    if " " in found:
        what = f"{whose}, and Spark gives a path with a space to a shell unquoted"
        yield Result(variable, "missing", what, "install the package into an environment whose path has no space")
        return
    who = whose if named else f"{whose}, {found}"
    facts = _probed(found, environment)
    lacking = _lacking(facts)
    if lacking:
        yield Result(variable, "missing", f"{who}, {lacking}", fix if found != sys.executable else _install(found))
        return
    if facts["package"] != __version__:
        what = f"{who}, which has version {facts['package']} of this package, and this program is {__version__}"
        yield Result(variable, "warning", what, f"{_install(found)}, or {fix}")
    elif named:
        yield Result(variable, "ok", f"{found}: Python {facts['python']}, this package {facts['package']}")
    else:
        yield Result(variable, "note", f"{who}: it has this package. Another PATH may give another Python", fix)
    yield _spark(facts, found)


def _spark(facts: Mapping[str, Any], found: str) -> Result:
    version = str(facts["spark"])
    if facts["refused"]:
        return Result("spark", "missing", str(facts["refused"]).partition("\n")[0].rstrip("."), _install(found))
    newest = str(facts["newest"])
    if _numbers(version) > _numbers(newest):
        fix = "nothing, or the newest tested one; docs/versions.md has them"
        return Result("spark", "warning", f"{version} is newer than the newest tested version ({newest})", fix)
    return Result("spark", "ok", version)


def _probed(program: str, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the answers of an interpreter, or the reason why there are none under `refused`."""
    home = environment.get("SPARK_HOME", "")
    # Add the pyspark of the distribution, as Spark's own launcher does.
    brought = [str(path) for path in sorted(Path(home, "python", "lib").glob("*.zip"))] if home else []
    path = os.pathsep.join([*brought, *filter(None, [environment.get("PYTHONPATH", "")])])
    try:
        done = subprocess.run(
            [program, "-c", _PROBE],
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=ANSWER_S,
            check=False,
        )
        facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return {"refused": f"does not answer within {ANSWER_S:.0f} seconds"}
    except (OSError, ValueError, IndexError) as error:
        return {"refused": f"does not run as a Python: {error}"}
    return facts


def _lacking(facts: Mapping[str, Any]) -> str:
    """Return the missing requirements of an interpreter, as the end of a sentence; '' if none is missing."""
    if "python" not in facts:
        return f"which {facts['refused']}"
    lacks = facts.get("lacks")
    if lacks and str(lacks).partition(".")[0] in _OURS:
        return "which lacks this package: Spark would report DATA_SOURCE_NOT_FOUND"
    if lacks:
        return f"which lacks {lacks}"
    return "" if "package" in facts else f"where the package does not load: {facts['refused']}"


def _use_ours(variable: str) -> str:
    """Return the commands that make Spark use the interpreter of this program."""
    export = f"export {VARIABLE}={sys.executable}"
    if variable != VARIABLE:
        export = f"unset {variable}; {export}"
    return export if importlib.util.find_spec("pyspark") else f"{_install(sys.executable)}; then {export}"


def _install(found: str) -> str:
    return f"install this package with its extra [spark] into it (README.md): {found} -m pip install …"


def _java(environment: Mapping[str, str]) -> Result:
    home = environment.get("JAVA_HOME", "")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java", path=environment.get("PATH"))
    fix = f"install a Java runtime, {OLDEST_JAVA} or newer, as java on the PATH or in JAVA_HOME"
    if program is None:
        return Result("java", "missing", "no java is on the PATH, and JAVA_HOME is not set", fix)
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Result("java", "missing", f"{program} does not run: {error}", fix)
    version = re.search(r'version "(\d+)', done.stderr)
    if version is None:
        return Result("java", "warning", f"{program} does not report its version", fix)
    if int(version[1]) < OLDEST_JAVA:
        return Result("java", "missing", f"{program} is {version[1]}", fix)
    return Result("java", "ok", f"{version[1]}, {program}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])
