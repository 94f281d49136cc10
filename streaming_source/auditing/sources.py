"""The tables of the server as they were at the position of an audit.

`read_source` returns a table's rows as a DataFrame that gives every action the same rows. `position_now` returns the
end of the binlog, for audits without a position. Options that the audit sets itself are errors.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from replica.errors import ConfigError
from replica.handshake.start.end import server_position
from streaming_source.batch.tables import POSITION
from streaming_source.options.source_options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from replica.rows.types.types import ValuePolicy

_DECIDED: Final = ("table", "tables", "content", "endingposition", "path", "columns", "excludetables", "rowshape")
"""Options that an audit sets itself, or that would exclude rows or columns."""


def source_options(given: Mapping[str, object]) -> dict[str, str]:
    """Return the options of the source as Spark takes them.

    Raises:
        ConfigError: one of them is decided by the audit.
    """
    for name in given:
        if name.lower() in _DECIDED:
            raise ConfigError(
                f"option {name} is not allowed in an audit, which compares whole tables at one position.",
                hint="Name the tables in tables, the position in at, and columns to leave out in ignore.",
            )
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in given.items()}


def value_policy(options: Mapping[str, str], table: str) -> ValuePolicy:
    """Return how values are converted that the types cannot hold."""
    return _parsed(options, table).policy


def position_now(options: Mapping[str, str], table: str) -> str:
    """Return the position at the end of the server's binlog."""
    return str(asyncio.run(server_position(_parsed(options, table).connection)))


def read_source(spark: SparkSession, options: Mapping[str, str], table: str, position: str) -> DataFrame:
    """Return a table's rows at the position."""
    reader = spark.read.format("mariadb-binlog").options(**options)
    return reader.options(content="tables", table=table, endingPosition=position).load().drop(POSITION)


def _parsed(options: Mapping[str, str], table: str) -> SourceOptions:
    return SourceOptions.parse({name.lower(): value for name, value in options.items()} | {"table": table})
