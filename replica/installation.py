"""Report of a package that cannot be imported because it is missing, broken or hidden.

In: the error of an import, or of an attribute that a module lacks because another package has its name. Out: an
`InstallationError` that names the package, the interpreter and the file that hides the package, if there is one.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

from replica.errors import InstallationError

OURS = ("replica", "streaming_source")


def installation_error(error: ImportError | AttributeError) -> InstallationError | None:
    """Return the error to raise instead, or None for an AttributeError that is a bug of this project."""
    names = [name for name in (_named(error), _failing(error)) if name]
    for name in names:
        hiding = _hiding(name)
        if hiding:
            return InstallationError(
                f"the package {name} is hidden: {sys.executable} finds {hiding} first.",
                hint="Give that file another name, or start from another folder.",
            )
    if isinstance(error, AttributeError):
        return None
    name = names[0] if names else "a package"
    if isinstance(error, ModuleNotFoundError):
        said = f"{name} is missing in {sys.executable}."
    else:
        said = f"{name} in {sys.executable} cannot be imported: {str(error).strip().rstrip('.')}."
    return InstallationError(
        said,
        hint="Install spark-mariadb-binlog again with that interpreter's pip, or name another with PYSPARK_PYTHON.",
    )


def _named(error: ImportError | AttributeError) -> str:
    """Return the name of the package that the error is about."""
    if isinstance(error, AttributeError):
        module = error.obj
        return module.__name__.partition(".")[0] if isinstance(module, ModuleType) else ""
    return (error.name or "").partition(".")[0]


def _failing(error: BaseException) -> str:
    """Return the name of the package whose code failed, or '' if it is one of this project."""
    name, step = "", error.__traceback__
    while step is not None:
        name = str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0]
        step = step.tb_next
    return "" if name in OURS else name


def _hiding(name: str) -> str:
    """Return the file that Python imports instead of the installed package `name`, or '' if there is no such file."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return ""
    found = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
    owners = importlib.metadata.packages_distributions().get(name, ())
    if not found or not owners:
        return ""
    homes = [Path(str(importlib.metadata.distribution(owner).locate_file(""))).resolve() for owner in owners]
    return "" if any(Path(found).resolve().is_relative_to(home) for home in homes) else found
