"""Class that Spark finds for `format("mariadb-binlog")`.

Spark imports every `pyspark_*` package and looks for `DefaultSource`. One package that raises switches discovery off
for all data sources, so this module imports nothing heavy and never raises. If a file or folder of the user's project
hides one of our packages, `DefaultSource` is a class that reports this when it is used.
"""

import os
from importlib.util import find_spec

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # pyspark is missing or older than the Python data source API: there is nothing to discover
    DataSource = None


def _hidden() -> str:
    """Return why our packages cannot be imported, or an empty string. Nothing that hides them is executed."""
    beside = os.path.dirname(os.path.dirname(__file__))  # noqa: PTH120  (pathlib costs every Spark session an import)
    for name in ("replica", "streaming_source"):
        ours = os.path.join(beside, name)  # noqa: PTH118  (every Spark session pays)
        try:
            spec = find_spec(name)
        except (ImportError, ValueError):
            spec = None
        found = spec and (spec.origin or next(iter(spec.submodule_search_locations or ()), None))
        if not found:
            return f"its package {name} is missing in {beside}. Install spark-mariadb-binlog again."
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
    """Data source that cannot be used, and raises the reason at `.load()`."""

    reason = ""

    @classmethod
    def name(cls) -> str:
        return "mariadb-binlog"

    def __init__(self, options: object) -> None:  # noqa: ARG002  (Spark's constructor)
        if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":  # as in streaming_source/driver/spark_border.py
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise ImportError(f"mariadb-binlog cannot be loaded: {self.reason}")


reason = "" if DataSource is None else _hidden()
"""Why the source cannot be used; empty if it can, or if there is no Spark."""
DefaultSource: type | None = None
if DataSource is not None:
    if not reason:
        try:
            from streaming_source.source.data_source import MariaDbBinlogSource

            DefaultSource = MariaDbBinlogSource
        except Exception as error:  # noqa: BLE001  (whatever it is, other sources must still be found)
            reason = f"{type(error).__name__}: {error}"
    if reason:
        DefaultSource = type("DefaultSource", (UnusableSource, DataSource), {"reason": reason})
