"""Refusal of executors that have another version of this package than the driver.

Spark pickles readers and functions of tasks in the driver. `OfThisVersion` puts the version of the driver before the
pickle of such an object. An executor compares the version before it unpickles anything else: an object of another
version may lack fields, or belong to modules that this executor does not have.
"""

from __future__ import annotations

import pickle
import socket
import sys
from typing import Any, SupportsIndex, cast

from replica.errors import InstallationError
from replica.version import __version__
from streaming_source.driver.spark_border import spark_border


class OfThisVersion:
    """Base class of objects that travel from the driver to tasks."""

    __slots__ = ()

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        made, arguments, state = cast("tuple[Any, ...]", object.__reduce_ex__(self, 5))[:3]
        return revived, (__version__, pickle.dumps((made, arguments, state)))


@spark_border()
def revived(version: str, pickled: bytes) -> object:
    """Return the object that the driver pickled.

    Raises:
        InstallationError: the driver has another version of this package.
    """
    if version != __version__:
        raise InstallationError(
            f"the executor on {socket.gethostname()} has spark-mariadb-binlog {__version__} ({sys.executable}), "
            f"and the driver has {version}.",
            hint="Install the same version on the driver and all executors, and restart the application.",
        )
    made, arguments, state = pickle.loads(pickled)  # noqa: S301  (Spark's own pickle from the driver)
    found: object = made(*arguments)
    if hasattr(found, "__setstate__"):
        found.__setstate__(state)
    else:
        found.__dict__.update(state or {})
    return found
