"""Spark finds `format("mariadb-binlog")` through this module: it looks for `DefaultSource` in every `pyspark_*` module.

One broken `pyspark_*` module switches discovery off for all sources, so this file imports nothing heavy and never
raises. Where a file or folder of the user's project has the name of one of our packages, Python imports that one: the
source found here then is one that says so when it is used.
"""

import os
from importlib.util import find_spec

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # pyspark is missing or older than the Python data source API: there is nothing to discover
    DataSource = None


def _hidden() -> str:
    """Why our packages cannot be imported as they are; empty if they can. Runs nothing of what hides them."""
    for name in ("replica", "streaming_source"):
        ours = os.path.join(os.path.dirname(__file__), name)  # noqa: PTH118, PTH120  (every Spark session pays)
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = None
        found = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
        if not found:
            return f"its package {name} is missing beside {__file__}. Install spark-mariadb-binlog again."
        if not _same(os.path.dirname(found), ours):  # noqa: PTH120
            return (
                f"its package {name} ({ours}) is hidden: Python finds {found} first. "
                "Give that file or folder another name, or start Spark from another folder."
            )
    return ""


def _same(found: str, ours: str) -> bool:
    try:
        return found == ours or os.path.samefile(found, ours)  # noqa: PTH121
    except OSError:
        return False


class UnusableSource:
    """Says at `.load()` why the source cannot be used. No import of ours gives this error a type of its own."""

    reason = ""

    @classmethod
    def name(cls) -> str:
        return "mariadb-binlog"

    def __init__(self, options: object) -> None:  # noqa: ARG002  (Spark's constructor)
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":  # as in streaming_source/driver/spark_border.py
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise ImportError(f"mariadb-binlog cannot be loaded: {self.reason}")


if DataSource is None:
    DefaultSource = None
else:
    reason = _hidden()
    if not reason:
        try:
            from streaming_source.source import MariaDbBinlogSource as DefaultSource
        except Exception as error:  # noqa: BLE001  (whatever it is, other sources must still be found)
            reason = f"{type(error).__name__}: {error}"
    if reason:
        DefaultSource = type("DefaultSource", (UnusableSource, DataSource), {"reason": reason})  # type: ignore[assignment,misc]
