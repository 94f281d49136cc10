"""The option `path` -> the binlog files it means, in the order they were written.

A path is a file, a directory or a glob. In directories and globs, what is no binlog is passed over (the index files of
servers and of our own relay logs, dumps, folders); a file that is named itself is taken as one. Within one directory or
glob the number at the end of the names orders the files; files without numbers are ordered by what stands in them (the
GTID position each begins at, then the second it was begun in), never by the time of the file system, which copying
changes. Several paths keep the order they are given in.

A gap between the numbers is logged. Refused: a path where nothing is, a directory without a binlog, one that holds the
binlogs of two servers or relay logs beside binlogs (they hold the same transactions twice), one file both plain and
compressed.
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
_SHOWN: Final = 3  # names in a message

Age = tuple[int, int]
"""Where a file without a number stands among others: groups before it, and the second it was begun in."""


class Looks(NamedTuple):
    """The ways to look at files: whether one is a binlog (also a compressed one), and how old it is."""

    is_binlog: Callable[[Path], bool]
    age: Callable[[Path], Age]


def primary_name(path: str) -> str:
    """Return what the server called the file: its name without the suffix of a compression."""
    name = Path(path).name
    return name.removesuffix(next((suffix for suffix in COMPRESSED_SUFFIXES if name.endswith(suffix)), ""))


def find_binlogs(paths: Iterable[str], looks: Looks) -> list[str]:
    """Return the absolute paths of all binlog files meant, each once, in stream order.

    Raises:
        ConfigError: a path means no binlog, or what it means cannot be put in order.
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
            hint="The driver and all tasks open the path themselves: it has to lie on storage that every node sees.",
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
            "They may hold the same transactions, and nothing tells which comes first.",
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
