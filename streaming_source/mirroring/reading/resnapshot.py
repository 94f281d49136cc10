"""Requests for a re-snapshot while the query runs: `mirror_resnapshot()` for users, `request_resnapshot` for the
mirror.

A running query takes a request at its next trigger, a stopped mirror at its next start. The targets are then created
again from the catalog and filled, while other tables continue. `keep_rows` prepares a target that keeps its older rows.
Refused: tables that the mirror does not have, and a control table that does not name its checkpoint.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError
from replica.schema.effects.effect import StatementEffect
from replica.schema.patterns import table_named, table_text
from streaming_source.driver.deployment import private_base
from streaming_source.mirroring.batch.batch_facts import StatementRow
from streaming_source.mirroring.control.control_table import CHECKPOINT, FAILED, NO_BATCH, control_of
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.mode import own_columns
from streaming_source.mirroring.writers.choose import control_store
from streaming_source.mirroring.writers.target_format import RESNAPSHOT
from streaming_source.offsets.reading_requests import RequestFolder, ResnapshotRequest
from streaming_source.schema.target_modes import CURRENT

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

    from replica.protocol.gtid import GtidPosition
    from replica.schema.known_tables import TableName
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter
    from streaming_source.transforms.transformed_images import TargetColumn


# A request is a file in a folder on the driver's machine. Repeated requests with the same id have one effect, so a
# retry is safe.


RESNAPSHOT_HINT: Final = 'Re-snapshot the table: mirror_resnapshot(spark, tables=["{table}"], into=…).'
"""Hint of errors that only a re-snapshot resolves."""
FIRST_WAIT_S: Final = 10.0
LONGEST_WAIT_S: Final = 600.0
"""Longest wait before a retry. Each wait is twice the last one, so a table with endless ALTERs costs little."""
MOST_TRIES: Final = 5
"""Most retries after a fault, the last one five minutes after the first. Retries after statements have no limit."""


def requests_folder(checkpoint: str) -> Path:
    """Return the folder for requests to the mirror with this checkpoint, on this machine.

    Raises:
        RelayError: other users can write there.
    """
    path = checkpoint.removeprefix("file://").rstrip("/")
    path = path if "://" in path else str(Path(path).absolute())
    return private_base() / f"mirror-{hashlib.sha256(path.encode()).hexdigest()[:16]}"


def request_resnapshot(checkpoint: str, tables: Iterable[TableName], request_id: str, *, wait_s: float = 0.0) -> None:
    """Ask the mirror with this checkpoint to re-snapshot tables, after at least `wait_s` seconds.

    Raises:
        ConfigError, RelayError: the request cannot be written.
    """
    request = ResnapshotRequest(request_id, tuple(sorted(tables)), time.time() + wait_s if wait_s else 0.0)
    RequestFolder(requests_folder(checkpoint)).put(request)


def wait_s(row: ControlRow) -> float:
    """Return the seconds to wait before a table is re-snapshot; 0 for the first re-snapshot after a statement."""
    tries = row.tries + (row.state == FAILED)
    return min(FIRST_WAIT_S * 2.0 ** (tries - 1), LONGEST_WAIT_S) if tries else 0.0


def mirror_resnapshot(
    spark: SparkSession,
    *,
    tables: Collection[str],
    into: str | None = None,
    control: str | None = None,
    icebergCatalog: str | Mapping[str, str] | None = None,  # noqa: N803
) -> None:
    """Ask a mirror to re-snapshot tables, while the other tables go on.

    The mirror creates the targets again and reads all rows. Tables can be in any state; suspended ones become active
    again. A stopped mirror re-snapshots at its next start. Call this on the machine and account of the mirror's driver.

    Args:
        spark: a session that sees the control table.
        tables: the tables, as database.table.
        into: the template that the mirror was started with. Not needed with `control`.
        control: the name of the control table of the mirror.
        icebergCatalog: the catalog of a mirror with `format="iceberg"`, as `mirror` takes it. A process that has called
            `mirror` already knows the catalog.

    Raises:
        ConfigError: there is no such mirror, it does not have one of the tables, or the request cannot be written.
        RelayError: other users can write to the folder of requests.
    """
    name, rows = control_of(spark, "mirror_resnapshot", into, control, icebergCatalog)
    chosen = chosen_tables(tables, rows)
    properties = control_store(spark, name).properties()
    if CHECKPOINT not in properties:
        raise ConfigError(
            f"{name} does not record the mirror's checkpoint.",
            hint="Start the mirror with resnapshot instead.",
        )
    request_resnapshot(properties[CHECKPOINT], chosen, uuid.uuid4().hex)


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


# A mode that keeps ended rows keeps its target during a re-snapshot: all rows are ended, and snapshot rows are
# appended. A repeated micro-batch skips the commits that the target already has.


_ORDINAL: Final = 899_999_999_999
"""Ordinal of the end of the old rows within a transaction: after all changes, before the snapshot rows."""


class NewReading(NamedTuple):
    """Beginning of a re-snapshot.

    Attributes:
        row: the table's row of the control table before the re-snapshot.
        position: the GTID position at the end of the micro-batch.
        commit: the token of the micro-batch.
    """

    row: ControlRow
    position: GtidPosition
    commit: Commit

    def keeps(self, first: ControlRow) -> bool:
        """Return True if the target keeps its rows during the re-snapshot.

        The target has to have rows, and the mode and rule of `first`, the first row after the re-snapshot.
        """
        same = (self.row.mode, self.row.rules) == (first.mode, first.rules)
        return same and self.row.mode != CURRENT and self.row.batch != NO_BATCH


def keep_rows(target: TableWriter, reading: NewReading, columns: Sequence[TargetColumn]) -> None:
    """End all rows of a target, and change its columns to `columns`."""
    at = reading.commit.of(RESNAPSHOT)
    if reading.row.target_names is not None:
        names = names_in_target(reading.row.target_names, columns, own_columns(reading.row.mode))
        target.rename(names, at.step("names"))
    target.alter(columns, at)
    mode_of(reading.row.mode, reading.row.keys).end_all(target, _place(reading), "again", at)
    target.finish(1, at)


def names_in_target(
    names: Mapping[str, str], columns: Sequence[TargetColumn], own: Sequence[TargetColumn]
) -> dict[str, str | None]:
    """Return the names of the columns in a target by their new names; None for columns that the target lacks.

    Args:
        names: the columns of the table in the target, by their current names.
        columns: the new columns. A column that the table's rule renames keeps its name on the server in `of`.
        own: the columns of the mode.
    """
    mode = {column.name for column in own}
    old = {column.name: names.get(column.of) for column in columns if column.name not in mode}
    same = {column.name: column.of for column in columns}
    return {name: name if before == same[name] else before for name, before in old.items()}


def _place(reading: NewReading) -> StatementRow:
    """Return the place at which the old rows end: after the last change that the target has."""
    last = next(iter(reading.position), None)
    ended = reading.row.committed_at or dt.datetime.now(dt.UTC)
    return StatementRow(
        domain=0 if last is None else last.domain_id,
        number=0 if last is None else last.seq_no,
        ordinal=_ORDINAL,
        gtid=str(reading.position),
        effect=StatementEffect(""),
        committed_us=int(ended.timestamp()) * 1_000_000,
    )
