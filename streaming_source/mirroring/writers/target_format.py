"""Interface that every target format implements.

`TableWriter` is one target: it is created, altered, appended to and changed, and knows what is in it. Each call that
writes takes a `Commit`. Every format has to hold: a call whose commit is in the target does nothing, and a reader never
sees half of a commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.control.control_row import ControlRow
    from streaming_source.mirroring.modes.mode import Mode, NetChanges
    from streaming_source.mirroring.statements.added_values import KnownValue
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.ruling.target_columns import TargetColumn


@dataclass(frozen=True, slots=True)
class AddColumns:
    """New columns behind the others. Rows that are there have NULL in them, whatever `nullable` says."""

    columns: tuple[TargetColumn, ...]


@dataclass(frozen=True, slots=True)
class DropColumns:
    """Columns that go, by their names."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Another name of a column."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class SetType:
    """A wider type of a column."""

    name: str
    type: str


@dataclass(frozen=True, slots=True)
class DropNotNull:
    """A column that may be NULL from now on."""

    name: str


TargetAction: TypeAlias = AddColumns | DropColumns | RenameColumn | SetType | DropNotNull
"""A change of the columns of a target, which its format carries out."""


class TableWriter(Protocol):
    """One target, open for one batch of its mirror, or for a look at it."""

    @property
    def spark(self) -> SparkSession:
        """The session that it is written in."""

    @property
    def name(self) -> str:
        """The target as SQL names it."""

    def exists(self) -> bool:
        """Tell whether it is there."""

    def properties(self) -> Mapping[str, str]:
        """Return the properties that it was made with."""

    def count(self) -> int | None:
        """Return how many rows it has; None where only reading them would tell."""

    def create(self, columns: Sequence[TargetColumn], comment: str, properties: Mapping[str, str]) -> None:
        """Make it without rows, also in the place of one of this mirror that is there."""

    def has(self, at: Commit) -> bool:
        """Return True if a commit is in it, or a later one of the same batch."""

    def alter(self, columns: Sequence[TargetColumn], at: Commit, actions: Sequence[TargetAction] | None = None) -> None:
        """Give it these columns, and keep its rows. `actions`: the way there, in order, which knows what was renamed;
        without them a column is known by its name.
        """

    def rename(self, names: Mapping[str, str | None], at: Commit) -> None:
        """Give columns other names, where its format can. `names`: what they are called before the batch, by the new
        names; None: a column that is not there, whatever else has that name.
        """

    def fill(self, values: Mapping[str, KnownValue], at: Commit) -> None:
        """Give all rows these values, by column. Never asked of targets without the mode current."""

    def truncate(self, at: Commit) -> None:
        """Remove all rows."""

    def apply(self, mode: Mode, changes: NetChanges) -> None:
        """Bring in changes, and rows that were read, as a mode means them: by one commit, `changes.at`."""

    def end_rows(self, mode: Mode, statement: StatementRow, at: Commit) -> None:
        """End all rows that are valid, in a mode that keeps those that ended."""

    def append(self, rows: DataFrame, at: Commit) -> None:
        """Append rows."""

    def finish(self, rows: int, at: Commit) -> None:
        """Show what was appended since the target was opened, about so many rows, where that was not done at once."""

    def put_back(self, row: ControlRow) -> None:
        """Give it the rows and columns again that belong to a row of the control table."""

    def drop(self) -> None:
        """Remove it, where it is there."""

    def rows_at(self, row: ControlRow) -> DataFrame:
        """Return the rows that belong to a row of the control table, whatever came since.

        Raises:
            DataLossError: they are not kept any more.
        """


class ControlStore(Protocol):
    """The control table of a mirror with targets of the format."""

    def exists(self) -> bool:
        """Tell whether it is there."""

    def properties(self) -> Mapping[str, str]:
        """Return the properties that it was made with."""

    def make(self, columns: Sequence[TargetColumn], properties: Mapping[str, str]) -> None:
        """Make it without rows, where it is not there."""

    def add_columns(self, columns: Sequence[TargetColumn]) -> None:
        """Add columns, which are NULL in the rows that are there."""

    def rows(self) -> DataFrame:
        """Return its rows, by one version of it."""

    def replace(self, rows: DataFrame) -> None:
        """Put rows in the place of all that are there, as one step for readers."""


class TargetFormat(Protocol):
    """One format."""

    @property
    def name(self) -> str:
        """The word for it in `format=…`, and in the names of targets in folders."""

    @property
    def modes(self) -> frozenset[str]:
        """The modes that its targets can have."""

    @property
    def only_folders(self) -> bool:
        """Whether its targets are folders, and no tables of a catalog."""

    @property
    def own_properties(self) -> Mapping[str, str]:
        """The properties that every target gets, unless the call says otherwise."""

    def check_session(self, spark: SparkSession) -> None:
        """Refuse a session that cannot write the format.

        Raises:
            ConfigError: what is missing.
        """

    def target(self, spark: SparkSession, name: str, *, made: bool = False, folder: str | None = None) -> TableWriter:
        """Open a target.

        Args:
            spark: the session to write it in, which no other thread uses meanwhile.
            name: the target as SQL names it.
            made: whether it was made for this batch. A batch that comes again makes it again, so none of its commits
                can be in it.
            folder: where it lies, if delta-rs may write it.
        """

    def control(self, spark: SparkSession, name: str) -> ControlStore:
        """Return the control table of a name."""
