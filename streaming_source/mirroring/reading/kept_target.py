"""Re-snapshot of a table in a mode that keeps ended rows: the rows of its target stay, as ended rows.

In: the table's row of the control table before the re-snapshot, and the micro-batch that begins it. Out: the target
with the table's current columns, in which all rows are ended; snapshot rows are added later. If the micro-batch is
repeated, commits that the target already has are skipped.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.schema.effects.effect import StatementEffect
from streaming_source.mirroring.batch.batch_facts import StatementRow
from streaming_source.mirroring.control.control_row import NO_BATCH
from streaming_source.mirroring.modes.choose import mode_of
from streaming_source.mirroring.modes.kinds import own_columns
from streaming_source.mirroring.writers.versions import AGAIN
from streaming_source.schema.target_modes import CURRENT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from replica.protocol.gtid import GtidPosition
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.writers.target_format import TableWriter
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.transforms.target_columns import TargetColumn

_ORDINAL: Final = 899_999_999_999
"""Ordinal of the end of the old rows within a transaction: after all changes, before the snapshot rows."""


class NewReading(NamedTuple):
    """Beginning of a re-snapshot.

    Attributes:
        row: the table's row of the control table before it.
        position: the position at the end of the micro-batch.
        commit: the token of the micro-batch.
    """

    row: ControlRow
    position: GtidPosition
    commit: Commit

    def keeps(self, first: ControlRow) -> bool:
        """Return True if the target keeps its rows: it has some, and the mode and the rule of `first` are the same."""
        same = (self.row.mode, self.row.rules) == (first.mode, first.rules)
        return same and self.row.mode != CURRENT and self.row.batch != NO_BATCH


def keep_rows(target: TableWriter, reading: NewReading, columns: Sequence[TargetColumn]) -> None:
    """End all rows of a target, and alter it to these columns."""
    at = reading.commit.of(AGAIN)
    if reading.row.target_names is not None:
        names = names_there(reading.row.target_names, columns, own_columns(reading.row.mode))
        target.rename(names, at.step("names"))
    target.alter(columns, at)
    mode_of(reading.row.mode, reading.row.keys).end_all(target, _place(reading), "again", at)
    target.finish(1, at)


def names_there(
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
