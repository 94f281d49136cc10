"""The control table as the calls about a mirror name it: by the template of its targets, or by its own name.

In: `into` or `control`, as the mirror was started with. Out: the name as SQL takes it, and the rows. Refused: neither
of the two, and a name under which there is no control table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.errors import ConfigError
from streaming_source.driver.own_session import own_session
from streaming_source.mirroring.control import mirrored_tables
from streaming_source.mirroring.formats.choose import FORMATS, control_store
from streaming_source.mirroring.names import TargetNames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from streaming_source.mirroring.control_row import ControlRow

_HINT = "Give what the mirror was started with."


def control_of(spark: SparkSession, call: str, into: str | None, control: str | None) -> tuple[str, list[ControlRow]]:
    """Return the name of a control table, and its rows.

    Raises:
        ConfigError: neither is given, or there is no such control table.
    """
    if into is None and control is None:
        raise ConfigError(f"{call} needs into or control.", hint=_HINT)
    names = [TargetNames("{table}" if into is None else into, control, kind).control for kind in FORMATS]
    spark = own_session(spark)
    name = next((each for each in names if control_store(spark, each).exists()), None)
    if name is None:
        raise ConfigError(f"there is no control table {names[0]}.", hint=_HINT)
    return name, mirrored_tables(spark, name)
