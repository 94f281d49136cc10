"""The option `path`: the binlog files that it names, in the order in which they were written.

`find_binlogs` takes files, directories and globs. In directories and globs it ignores files that are not binlogs: index
files, dumps, folders. A file that is named directly has to be a binlog. Within one directory or glob, the numbers at
the end of names order the files. Files without numbers are ordered by content: by the GTID position at which each
begins, then by the second of its first event. Modification times are not used, because copying changes them. Several
paths keep their order.

A gap between numbers is logged. Errors: a path that does not exist, a directory without a binlog, a directory with the
binlogs of two servers or with relay logs beside binlogs (they have the same transactions twice), and one file both
plain and compressed.
"""

from __future__ import annotations

import glob
import logging
import re
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

COMPRESSED_SUFFIXES: Final = (".gz", ".zst", ".xz")
_log = logging.getLogger(__name__)
_IGNORED_SUFFIXES: Final = (".index", ".idx")
_NUMBERED = re.compile(r"(.+)\.(\d{6,})")  # as servers name them: at least six digits
_GLOB = re.compile(r"[*?\[]")
_SHOWN: Final = 3  # most names in a message

Age = tuple[int, int]
"""Sort key of a file without a number: the groups before it, and the Unix second of its first event."""


class Looks(NamedTuple):
    """Functions that inspect files: whether one is a binlog (also a compressed one), and its age."""

    is_binlog: Callable[[Path], bool]
    age: Callable[[Path], Age]


def primary_name(path: str) -> str:
    """Return the server's name of the file: its name without the suffix of a compression."""
    name = Path(path).name
    return name.removesuffix(next((suffix for suffix in COMPRESSED_SUFFIXES if name.endswith(suffix)), ""))


def find_binlogs(paths: Iterable[str], looks: Looks) -> list[str]:
    """Return the absolute paths of all binlog files that `paths` name, each once, in stream order.

    Raises:
        ConfigError: a path names no binlog, or its files cannot be put in order.
    """
    found: dict[str, None] = {}
    for path in paths:
        for file in _meant(path, looks):
            found[str(file.resolve())] = None
    return list(found)


def _meant(path: str, looks: Looks) -> list[Path]:
    here = Path(path)
    if here.is_file():
        return [here]
    if here.is_dir():
        candidates = sorted(here.iterdir())
        where = f"directory {path}"
    elif _GLOB.search(path):
        candidates = [Path(name) for name in sorted(glob.glob(path))]  # noqa: PTH207  (absolute patterns too)
        where = f"path {path}"
    else:
        raise ConfigError(
            f"there is no file {path} on this machine.",
            hint="The driver and all tasks open the path themselves: put it on storage that every node can read.",
        )
    files = [file for file in candidates if file.suffix not in _IGNORED_SUFFIXES and file.is_file()]
    binlogs = [file for file in files if looks.is_binlog(file)]
    if not binlogs:
        others = f"{len(candidates)} other entries" if candidates else "nothing at all"
        raise ConfigError(
            f"{where} holds no binlog file, but {others}.",
            hint="Name the folder that log_bin points to, or the files: /var/lib/mysql/binlog.0*.",
        )
    return _ordered(where, binlogs, looks.age)


def _ordered(where: str, files: Sequence[Path], age: Callable[[Path], Age]) -> list[Path]:
    numbered = {file: _NUMBERED.fullmatch(primary_name(str(file))) for file in files}
    if not all(numbered.values()):
        _refuse_twins(where, [(primary_name(str(file)), file) for file in files])
        ages = {file: age(file) for file in files}
        return sorted(files, key=lambda file: (ages[file], file.name))
    keys = {file: (match[1], int(match[2])) for file, match in numbered.items() if match}
    bases = sorted({base for base, _ in keys.values()})
    if len(bases) > 1:
        raise ConfigError(
            f"{where} holds {len(bases)} series of binlogs: {', '.join(f'{base}.*' for base in bases[:_SHOWN])}. "
            "They may hold the same transactions, and their order is unknown.",
            hint=f"Name one of them, {Path(files[0]).parent / bases[0]}.*, or several with commas in their order.",
        )
    _refuse_twins(where, [(keys[file], file) for file in files])
    ordered = sorted(files, key=keys.__getitem__)
    for before, after in pairwise(ordered):
        if keys[after][1] - keys[before][1] > 1:
            _log.warning("%s: binlogs are missing between %s and %s", where, before.name, after.name)
    return ordered


def _refuse_twins(where: str, keyed: Iterable[tuple[object, Path]]) -> None:
    seen: dict[object, Path] = {}
    for key, file in keyed:
        if key in seen:
            raise ConfigError(
                f"{where} holds one binlog twice: {seen[key].name} and {file.name}.",
                hint="Move one of them away, or name the files you mean.",
            )
        seen[key] = file
