"""Lazy import of the public names of a package, so that an import of the package costs nothing.

In: the module that defines each name. Out: the package's `__getattr__` and `__dir__`. If a dependency of a name cannot
be imported, the error names the package, the interpreter and the file that hides the package.
"""

from __future__ import annotations

import importlib

TYPE_CHECKING = False  # importing typing takes longer than all the rest of this file
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def on_demand(
    package: str, modules: Mapping[str, str], renamed: Mapping[str, str] | None = None
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package.

    Args:
        package: import name of the package.
        modules: name -> the module in the package that defines it.
        renamed: former name -> the name that it has now. A former name works, with one FutureWarning.

    Raises:
        InstallationError: from `__getattr__`, if a package that the name needs is missing, broken or hidden.
    """

    def find(name: str) -> object:
        if renamed is not None and name in renamed:
            import warnings  # noqa: PLC0415  (every process imports this file)

            warnings.warn(f"{name} is called {renamed[name]} now.", FutureWarning, stacklevel=3)
            name = renamed[name]
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            return getattr(importlib.import_module(f"{package}.{modules[name]}"), name)
        except ImportError as error:
            from replica.installation import installation_error  # noqa: PLC0415  (every process imports this file)

            raise installation_error(error) or error from error

    return find, lambda: sorted(modules)
