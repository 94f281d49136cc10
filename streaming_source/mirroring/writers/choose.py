"""Target formats, and the lookup of a format by the name of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.writers.delta import DeltaFormat
from streaming_source.mirroring.writers.iceberg.tables import IcebergFormat
from streaming_source.mirroring.writers.parquet import ParquetFormat
from streaming_source.sinks.delta import DELTA
from streaming_source.sinks.iceberg.catalogs import is_iceberg, kind_of, registered

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.writers.target_format import ControlStore, TableWriter, TargetFormat

FORMATS: Final[dict[str, TargetFormat]] = {
    each.name: each for each in (DeltaFormat(), ParquetFormat(), IcebergFormat())
}


def format_of(name: str) -> TargetFormat:
    """Return the format of a target or control table by its name.

    The format is Delta, unless the first part of a folder's name is another format, or the first part names a catalog
    of Iceberg.
    """
    if is_iceberg(name):
        return FORMATS[IcebergFormat.name]
    first, _, rest = name.partition(".")
    return FORMATS.get(first.strip("`"), FORMATS[DELTA]) if "/" in rest else FORMATS[DELTA]


def kinds() -> list[str]:
    """Return the kinds of names with which `TargetNames` finds a control table: formats, and catalogs of Iceberg."""
    return [*(name for name in FORMATS if name != IcebergFormat.name), *map(kind_of, registered())]


def open_target(spark: SparkSession, name: str, *, made: bool = False, folder: str | None = None) -> TableWriter:
    """Open the target of this name; the arguments are those of `TargetFormat.target`."""
    return format_of(name).target(spark, name, made=made, folder=folder)


def control_store(spark: SparkSession, name: str) -> ControlStore:
    """Return the control table of this name."""
    return format_of(name).control(spark, name)
