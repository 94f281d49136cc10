"""Interface that every target format implements.

`TableWriter` is one target: it is created, altered and written, and knows its commits. Each call that writes takes a
`Commit`. Every format has to keep two guarantees. A call whose commit is already in the target does nothing. A reader
never sees a part of a commit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from streaming_source.auditing.mirror.from_mirror import batch_of, commits_of, version_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.control.control_table import ControlRow
    from streaming_source.mirroring.control.target_names import TargetNames
    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.transforms.transformed_images import TargetColumn


@dataclass(frozen=True, slots=True)
class AddColumns:
    """New columns after the existing ones. Existing rows have NULL in them, whatever `nullable` says."""

    columns: tuple[TargetColumn, ...]


@dataclass(frozen=True, slots=True)
class DropColumns:
    """Columns to drop, by their names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """New name of a column."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SetType:
    """Wider type of a column."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class DropNotNull:
    """Column that becomes nullable."""

    name: str


TargetAction: TypeAlias = AddColumns | DropColumns | RenameColumn | SetType | DropNotNull
"""Change of the columns of a target, which its format carries out."""


class TableWriter(Protocol):
    """One target, open for one micro-batch of its mirror, or for reading."""

    @property
    def spark(self) -> SparkSession:
        """Session in which the target is written."""

    @property
    def name(self) -> str:
        """Name of the target in SQL."""

    def exists(self) -> bool:
        """Return True if the target exists."""

    def properties(self) -> Mapping[str, str]:
        """Return the properties with which the target was created."""

    def count(self) -> int | None:
        """Return the number of rows, or None if this needs a scan."""

    def rows(self) -> DataFrame:
        """Return the current rows."""

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Create the target without rows, or replace the existing target of this mirror."""

    def has(self, at: Commit) -> bool:
        """Return True if the target has the commit, or a later commit of the same micro-batch."""

    def alter(self, columns: Sequence[TargetColumn], at: Commit, actions: Sequence[TargetAction] | None = None) -> None:
        """Change the columns of the target to `columns`, and keep its rows.

        Args:
            columns: the new columns.
            at: the commit.
            actions: the changes, in order, which include renames. None: columns are matched by name.
        """

    def rename(self, names: Mapping[str, str | None], at: Commit) -> None:
        """Rename columns, if the format can.

        Args:
            names: the names before the micro-batch, by the new names. None: the target lacks the column, even if it has
                another column of this name.
            at: the commit.
        """

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        """Set columns of all rows to these values; only targets in the mode current get this call."""

    def truncate(self, at: Commit) -> None:
        """Delete all rows."""

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Apply changes and snapshot rows as the mode defines, in the one commit `changes.at`."""

    def merge(self, statement: str, rows: DataFrame, placeholder: str) -> None:
        """Run a MERGE that has no token, because a repeated micro-batch repeats it.

        Args:
            statement: the MERGE, with the placeholder in braces for its source.
            rows: the source.
            placeholder: the name of the source in the statement.
        """

    def end_rows(self, mode: Mode, statement: StatementRow, at: Commit) -> None:
        """End all valid rows, in a mode that keeps ended rows."""

    def append(self, rows: DataFrame, at: Commit) -> None:
        """Append rows."""

    def finish(self, rows: int, at: Commit) -> None:
        """Write rows that `append` has held back, about `rows` of them."""

    def restore(self, row: ControlRow) -> None:
        """Reset the target to the rows and columns that belong to a row of the control table."""

    def drop(self) -> None:
        """Remove the target if it exists."""

    def rows_at(self, row: ControlRow) -> DataFrame:
        """Return the rows that belong to a row of the control table, without later changes.

        Raises:
            DataLossError: the target does not keep them any more.
        """


class ControlStore(Protocol):
    """Control table of a mirror, in the format of its targets."""

    def exists(self) -> bool:
        """Return True if the control table exists."""

    def properties(self) -> Mapping[str, str]:
        """Return the properties with which the control table was created."""

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Create the control table without rows, if it does not exist."""

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Add columns, which are NULL in existing rows."""

    def rows(self) -> DataFrame:
        """Return the rows of one version of the control table."""

    def replace(self, rows: DataFrame) -> None:
        """Replace all rows, in one step for readers."""


class TargetFormat(Protocol):
    """One target format."""

    @property
    def name(self) -> str:
        """Name of the format in `format=…`, and in the names of folder targets."""

    @property
    def modes(self) -> frozenset[str]:
        """Modes that the targets can have."""

    @property
    def only_folders(self) -> bool:
        """Whether targets have to be folders, and cannot be catalog tables."""

    @property
    def own_properties(self) -> Mapping[str, str]:
        """Default properties of every target."""

    def check_session(self, spark: SparkSession, names: TargetNames, writer: str) -> None:
        """Refuse a session that cannot write the format.

        Args:
            spark: the session.
            names: the names of the targets and of the control table.
            writer: what writes targets, `native` or `spark`.

        Raises:
            ConfigError: the session lacks something.
        """

    def target(self, spark: SparkSession, name: str, *, made: bool = False, folder: str | None = None) -> TableWriter:
        """Open a target.

        Args:
            spark: the session that writes it. No other thread may use it meanwhile.
            name: the target's name in SQL.
            made: the target was created for this micro-batch. A repeated micro-batch creates it again, so it has none
                of its commits.
            folder: the folder of the target, if delta-rs may write it.
        """

    def control(self, spark: SparkSession, name: str) -> ControlStore:
        """Return the control table of this name."""


# `Commit` is the only idempotence token: the mirror, the micro-batch, and the part of the micro-batch. All writers
# store the token in the user metadata, and `parts_in` reads it back. Commits of rows also store the token as a
# transaction of Delta: a late task finds it there, and it stays when the log is cleaned.


METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
CHANGES: Final = "changes"
"""Part of a micro-batch that is merged."""
READS: Final = "read"
"""Part of a micro-batch that is appended, or all rows of a table without a key."""
ROWS: Final = frozenset({CHANGES, READS})

RESNAPSHOT: Final = "again"
"""Part that ends all rows of a target that keeps them during a re-snapshot."""
UNNUMBERED: Final = ""
"""Part of commits that a repeated micro-batch repeats: new targets, cascades, the control table."""


class Commit(NamedTuple):
    """Idempotence token of a commit: its mirror, micro-batch and part, and the GTID position of the batch's end."""

    mirror: str
    batch: int
    position: str
    part: str = CHANGES

    @property
    def writer(self) -> str:
        """Name under which Delta keeps the number of the last micro-batch."""
        return f"{self.mirror}/{self.part}"

    @property
    def metadata(self) -> str:
        """User metadata of the commit."""
        about = {"mirror": self.mirror, "batch": self.batch, "position": self.position}
        return json.dumps({**about, "part": self.part} if self.part else about)

    def of(self, part: str) -> Commit:
        """Return the token of another part of the micro-batch."""
        return self._replace(part=part)

    def step(self, name: object) -> Commit:
        """Return the token of one of several commits of a part."""
        return self._replace(part=f"{self.part}/{name}")


def version_at(spark: SparkSession, row: ControlRow) -> int:
    """Return the version of the row's target for VERSION AS OF.

    Raises:
        DataLossError: the target's history does not reach back to this version.
    """
    return version_of(spark, row.target, row.mirror, row.batch)


def parts_in(spark: SparkSession, target: str, batch: Commit) -> frozenset[str]:
    """Return the parts of a micro-batch in a target's log, except parts that were cleaned from the log.

    Args:
        spark: the session.
        target: the target's name in SQL.
        batch: any token of the micro-batch.
    """
    ours = (metadata for _, metadata in commits_of(spark, target) if batch_of(metadata, batch.mirror) == batch.batch)
    return frozenset(json.loads(metadata).get("part", UNNUMBERED) for metadata in ours if metadata)
