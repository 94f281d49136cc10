"""Check of the package deltalake: it is installed, in a version whose files were compared with Spark's."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from replica.errors import ConfigError

OLDEST: Final = (1, 6, 6)
NEXT: Final = (1, 7)
"""First version that is not supported. pyproject.toml has the same limits."""
_HINT: Final = (
    'Install "deltalake>=1.6.6,<1.7" in the driver and on all executors, or have Spark write all tables (writer=spark).'
)


@cache
def check_worker() -> None:
    """Refuse to write in a worker without a supported deltalake; the result is cached in each process.

    Raises:
        ConfigError: deltalake is not installed, or has another version.
    """
    check_deltalake()


def check_deltalake() -> None:
    """Refuse to start without a supported version of deltalake.

    Raises:
        ConfigError: deltalake is not installed, or has another version.
    """
    try:
        found = version("deltalake")
    except PackageNotFoundError:
        raise ConfigError("a mirror writes Delta tables with deltalake, which is not installed.", hint=_HINT) from None
    numbers = tuple(int(part) if part.isdigit() else 0 for part in found.split(".")[:3])
    if not OLDEST <= numbers < NEXT:
        raise ConfigError(f"deltalake {found} is installed, a version that the mirror does not support.", hint=_HINT)
