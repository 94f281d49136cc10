"""Interface of a mode, `Mode`, and its input, `NetChanges`: changes of one table between two statements.

A mode decides which columns a target has, and what a change does to its rows. `own_columns` returns the columns that a
mode adds, and `check_names` refuses a table that has a column of the same name. The splitting of a micro-batch at
statements and the handling of ALTER are the same in all modes. A writer without Spark implements each mode itself, by
its `name`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from replica.errors import SchemaError
from streaming_source.schema.spark_names import spark_column_key
from streaming_source.schema.target_modes import CURRENT, OWN_COLUMNS
from streaming_source.sinks.upserts import ADDED
from streaming_source.transforms.transformed_images import TargetColumn

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pyspark.sql import DataFrame

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.writers.target_format import Commit, TableWriter

EndReason = Literal["truncate", "drop", "again"]
"""Reason why all rows of a table end: TRUNCATE, a DROP that keeps the target, or the start of a re-snapshot ("again").
"""


class SparkChange(NamedTuple):
    """Rows, and the MERGE with which Spark applies them.

    In the MERGE, the rows are called `changes`. Without a MERGE, the rows are appended.
    """

    rows: DataFrame
    merge: str = ""


class NetChanges(NamedTuple):
    """Changes of one table: envelope rows with STRUCT images, or with `reduced` the last change of each key.

    Attributes:
        partial: an image may lack columns.
        domains: the changes may belong to several replication domains.
        at: the token of the commit that applies the changes.
    """

    rows: DataFrame
    target: TableWriter
    keys: Sequence[str]
    columns: Sequence[str]
    partial: bool
    domains: bool
    at: Commit
    reduced: bool = False


class Mode(Protocol):
    """Interface of a mode: how a target holds the rows of its table."""

    @property
    def name(self) -> str:
        """Name of the mode in rules and in the control table."""

    @property
    def append_only(self) -> bool:
        """Whether all rows are appended, also updates and deletes."""

    @property
    def by_key(self) -> bool:
        """Whether a change finds its row by a key, so that snapshot rows can be merged like changes."""

    @property
    def needs_latest_only(self) -> bool:
        """Whether `merge` needs only the last change of each key."""

    @property
    def appends_values(self) -> bool:
        """Whether `appended` uses only the column values of rows, without metadata of their transactions."""

    @property
    def cascades(self) -> frozenset[str]:
        """Foreign key actions that `cascaded` can apply: CASCADE (of a delete), SET NULL."""

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the columns of a target whose table has these columns."""

    def appended(self, part: NetChanges) -> DataFrame:
        """Return the rows to append to a target that has none of them yet."""

    def merge(self, part: NetChanges) -> SparkChange:
        """Return the rows and the MERGE with which Spark applies changes and snapshot rows."""

    def can_append(self, target: TableWriter) -> bool:
        """Return True if all snapshot rows are new to the target, so that they can be appended without a MERGE."""

    def end_all(self, target: TableWriter, statement: StatementRow, why: EndReason, at: Commit) -> None:
        """Apply a statement after which no row is valid.

        Args:
            target: the target.
            statement: the statement.
            why: the reason why the rows end.
            at: the token of the commit.
        """

    def end_statement(self, target: TableWriter, statement: StatementRow) -> str:
        """Return the UPDATE with which Spark ends all valid rows. Only modes that keep ended rows have one."""

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Return the actions of a MERGE that applies a foreign key to the matched rows.

        The source of the MERGE is called `gone`. Its rows with `gone.deleted` were deleted by a foreign key.
        `gone.gtid`, `gone.committed` and `gone.sequence` are the place of the loss.

        Args:
            nulls: the assignments for all other rows, which a foreign key set to NULL.
        """


_NEVER_NULL: Final = frozenset({"_deleted", "_from_gtid", "_from_sequence", "_current"})
CLOSE: Final = "_close"
"""Column that marks the closing rows of a MERGE of versions."""


def own_columns(mode: str) -> tuple[TargetColumn, ...]:
    """Return the columns that a target of this mode has after the columns of its table."""
    return tuple(
        TargetColumn(column.name, column.type, column.name not in _NEVER_NULL, column.help.partition(";")[0])
        for column in OWN_COLUMNS[mode]
    )


def check_names(table: str, mode: str, columns: Iterable[TargetColumn]) -> None:
    """Refuse a table with a column whose name the mode needs.

    Raises:
        SchemaError: the table has such a column.
    """
    needed = {*ADDED, CLOSE, *(column.name for column in own_columns(mode))} if mode != CURRENT else {*ADDED}
    for column in columns:
        if spark_column_key(column.name) in needed:
            raise SchemaError(
                f"{table} has a column {column.name}, and its target in the mode {mode} needs that name.",
                hint="Give the column another name in the target (rename in the table's rule), or leave the table out.",
            )
