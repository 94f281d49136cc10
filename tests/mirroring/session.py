"""The settings of a Spark session with Delta tables, for short queries."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.fixtures.jars import delta_settings
from tests.spark.conftest import CONFIGURATION

if TYPE_CHECKING:
    from pathlib import Path


def session_settings(folder: Path) -> dict[str, str]:
    return {**CONFIGURATION, **delta_settings(), "spark.sql.warehouse.dir": str(folder / "warehouse")}
