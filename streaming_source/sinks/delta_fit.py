"""The check that a session's Delta matches its Spark, before a query begins that writes with it.

A Delta that was built for another minor version of Spark would end in NoSuchMethodError in the middle of the first
batch. The name of its jar has the Spark version that it was built for. A Delta with another file name, as platforms
have, is accepted, and so is a session of Spark Connect, whose server cannot be asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from replica.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS: Final = "io.delta.sql.DeltaSparkSessionExtension"
_JAR: Final = re.compile(r"delta-spark_(?:(\d+\.\d+)_)?2\.\d+-((4\.\d+|\d+)\.[\w.]*\w)[\w-]*\.jar")
"""File name of Delta's jar. From 4.1 on, it has the Spark version. Delta 4.0 was for Spark 4.0, and Delta 3 for Spark
3.
"""


def check_delta(spark: SparkSession, *, required: bool = False) -> None:
    """Refuse a session whose Delta does not match; with `required`, also a session without Delta.

    Raises:
        ConfigError: Delta is built for another Spark, or is missing.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        return
    jar = _jar(jvm)
    if jar is None:
        if required:
            raise ConfigError(
                f"this session has no Delta: the class {_CLASS} is missing.",
                hint="Start it with Delta's package and settings (docs/recipes.md).",
            )
        return
    wanted = ".".join(spark.version.split(".")[:2])
    built_for, release = _told_by(jar)
    if built_for not in (None, wanted):
        raise ConfigError(
            f"the Delta of this session, {release}, is built for Spark {built_for}, and this is Spark {spark.version}: "
            "its first write would end in NoSuchMethodError.",
            hint=f"Use Delta's package for {wanted} (delta-spark_{wanted}_2.13), or the Spark that it is built for; "
            "docs/versions.md lists the tested versions.",
        )


def _told_by(jar: str) -> tuple[str | None, str]:
    """Return the Spark version that a jar of Delta is for, and its release; None if its name does not have the
    version.
    """
    found = _JAR.search(jar)
    return (None, jar) if found is None else (found[1] or found[3], found[2])


def _jar(jvm: Any) -> str | None:
    """Return the location of Delta's classes; None without Delta, '' if Java does not report it."""
    from py4j.protocol import Py4JJavaError

    try:
        # With Spark's class loader: spark.jars are on the class path of the session, not on that of the JVM.
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        source = jvm.java.lang.Class.forName(_CLASS, False, loader).getProtectionDomain().getCodeSource()
    except Py4JJavaError:  # ClassNotFoundException
        return None
    return "" if source is None or source.getLocation() is None else str(source.getLocation().toString())
