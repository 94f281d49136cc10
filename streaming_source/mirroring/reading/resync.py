"""The call that has tables of a mirror read again while its query runs, `mirror_resync()`.

In: the session, which mirror, which tables. Out: a request that the running query takes at its next trigger, or the
next start of the mirror. Refused: a table that is none of the mirror's, one whose rows no key tells apart, and a
control table that does not tell its checkpoint.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from replica.errors import ConfigError
from replica.schema.patterns import table_named, table_text
from streaming_source.mirroring.control.control_table import CHECKPOINT, control_of
from streaming_source.mirroring.reading.reread import ask_again
from streaming_source.mirroring.writers.choose import control_store

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyspark.sql import SparkSession

    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_row import ControlRow


def mirror_resync(
    spark: SparkSession, *, tables: Collection[str], into: str | None = None, control: str | None = None
) -> None:
    """Ask a mirror to make targets again and to read all rows of their tables, while the other tables go on.

    It works for tables in any state: those that were set aside come back, without a new start. A mirror that is
    stopped does it when it is started. The caller has to be on the machine of the mirror's driver, under the same
    account.

    Args:
        spark: a session that sees the control table.
        tables: those to read again, as database.table.
        into: the template that the mirror was started with; or
        control: the name of its control table.

    Raises:
        ConfigError: there is no such mirror, a table is none of its tables or cannot be read, or the request cannot
            be written.
        RelayError: others can write where requests wait.
    """
    name, rows = control_of(spark, "mirror_resync", into, control)
    chosen = chosen_tables(tables, rows)
    told = control_store(spark, name).properties()
    if CHECKPOINT not in told:
        raise ConfigError(
            f"{name} does not tell the mirror's checkpoint.",
            hint="Start the mirror with snapshotAgain instead.",
        )
    ask_again(told[CHECKPOINT], chosen, uuid.uuid4().hex)


def named_table(table: str) -> TableName:
    """Return the table that a call names.

    Raises:
        ConfigError: it is no name of one table.
    """
    try:
        return table_named(table)
    except ValueError as error:
        raise ConfigError(f"{table!r} {error}.", hint="Give tables as database.table.") from None


def chosen_tables(tables: Collection[str], rows: Iterable[ControlRow]) -> list[TableName]:
    """Return the tables of a mirror that a call names.

    Raises:
        ConfigError: none is named, or one is none of the mirror's.
    """
    known = {row.name: row for row in rows}
    if isinstance(tables, str) or not tables:
        raise ConfigError(
            f"tables={tables!r} is no list of tables.", hint='Give one: tables=["shop.orders"]; mirror_status has all.'
        )
    names = sorted(set(map(named_table, tables)))
    unknown = [table_text(name) for name in names if name not in known]
    if unknown:
        raise ConfigError(
            f"{', '.join(unknown)}: none of the mirror's tables.",
            hint="Give them as database.table; mirror_status has all.",
        )
    return names
