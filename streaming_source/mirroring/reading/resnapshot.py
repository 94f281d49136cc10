"""The function that requests a re-snapshot of tables while the query runs, `mirror_resnapshot()`.

In: the session, the mirror, the tables. Out: a request that the running query takes at its next trigger, or the mirror
at its next start. Refused: a table that the mirror does not have, and a control table that does not name its
checkpoint.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from replica.errors import ConfigError
from replica.schema.patterns import table_named, table_text
from streaming_source.mirroring.control.control_table import CHECKPOINT, control_of
from streaming_source.mirroring.reading.requests import ask_again
from streaming_source.mirroring.writers.choose import control_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_row import ControlRow


def mirror_resnapshot(
    spark: SparkSession, *, tables: Collection[str], into: str | None = None, control: str | None = None
) -> None:
    """Ask a mirror to re-snapshot tables, while the other tables go on.

    The mirror creates the targets again and reads all rows. This works for tables in any state: suspended tables become
    active again without a restart. A stopped mirror does it at its next start. The caller has to run on the machine of
    the mirror's driver, under the same account.

    Args:
        spark: a session that sees the control table.
        tables: the tables, as database.table.
        into: the template that the mirror was started with; or
        control: the name of its control table.

    Raises:
        ConfigError: there is no such mirror, it does not have one of the tables, or the request cannot be written.
        RelayError: other users can write to the folder of requests.
    """
    name, rows = control_of(spark, "mirror_resnapshot", into, control)
    chosen = chosen_tables(tables, rows)
    told = control_store(spark, name).properties()
    if CHECKPOINT not in told:
        raise ConfigError(
            f"{name} does not record the mirror's checkpoint.",
            hint="Start the mirror with resnapshot instead.",
        )
    ask_again(told[CHECKPOINT], chosen, uuid.uuid4().hex)


def named_table(table: str) -> TableName:
    """Return the table that an argument names.

    Raises:
        ConfigError: the text is not the name of one table.
    """
    try:
        return table_named(table)
    except ValueError as error:
        raise ConfigError(f"{table!r} {error}.", hint="Give tables as database.table.") from None


def chosen_tables(tables: Collection[str], rows: Iterable[ControlRow]) -> list[TableName]:
    """Return the tables of a mirror that an argument names.

    Raises:
        ConfigError: no table is named, or the mirror does not have one of them.
    """
    known = {row.name: row for row in rows}
    if isinstance(tables, str) or not tables:
        raise ConfigError(
            f"tables={tables!r} is not a list of tables.",
            hint='Give a list: tables=["shop.orders"]. mirror_status lists all tables.',
        )
    names = sorted(set(map(named_table, tables)))
    unknown = [table_text(name) for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: not among the mirror's tables.",
            hint="Give tables as database.table. mirror_status lists all tables.",
        )
    return names
