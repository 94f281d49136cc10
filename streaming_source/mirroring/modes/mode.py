"""The work of a mode: a part of a batch, and the end of all rows, into a target.

In: a `NetChanges`: change rows of one table, typed, between two statements. Out: what a writer of targets does with
them. A mode decides which columns a target has and what a change means there; where the part begins and ends, and what
an ALTER does, is the same in all modes. Writers that are no Spark know the modes by `name`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from streaming_source.mirroring.batch.batch_facts import StatementRow
    from streaming_source.mirroring.writers.target_format import TableWriter
    from streaming_source.mirroring.writers.versions import Commit
    from streaming_source.ruling.target_columns import TargetColumn


Gone = Literal["truncate", "drop", "again"]
"""Why all rows of a table end: it is emptied, it is dropped and its target stays, or its rows are read again."""


class SparkChange(NamedTuple):
    """Rows, and the MERGE by which Spark brings them in, which calls them `changes`; without one they are appended."""

    rows: DataFrame
    merge: str = ""


class NetChanges(NamedTuple):
    """Change rows of one table: envelope rows with STRUCT images, or with `reduced` the last change of each key.
    `partial`: an image may lack columns; `domains`: the changes may be of several replication domains; `at`: the token
    of the commit that applies them.
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
    """One way to hold a table."""

    @property
    def name(self) -> str:
        """What it is called in rules and in the control table."""

    @property
    def append_only(self) -> bool:
        """Whether all rows are appended, changes too."""

    @property
    def by_key(self) -> bool:
        """Whether a change finds its row by a key, so that rows that are read can be merged like changes."""

    @property
    def takes_reduced(self) -> bool:
        """Whether `merge` needs no more than the last change of each key."""

    @property
    def appends_values(self) -> bool:
        """Whether `appended` takes nothing but the values of rows: not what is known of their transactions."""

    @property
    def cascades(self) -> frozenset[str]:
        """Which actions of foreign keys `cascaded` can bring in: CASCADE (of a delete), SET NULL."""

    def columns(self, columns: Sequence[TargetColumn]) -> tuple[TargetColumn, ...]:
        """Return the columns of a target whose table has these."""

    def appended(self, part: NetChanges) -> DataFrame:
        """Return what to append for rows of which none can be in the target."""

    def merge(self, part: NetChanges) -> SparkChange:
        """Return how Spark brings in the changes, and the rows that were read."""

    def can_append(self, target: TableWriter) -> bool:
        """Tell whether rows that are read can only be new to the target."""

    def all_gone(self, target: TableWriter, statement: StatementRow, why: Gone, at: Commit) -> None:
        """Bring in that all rows ended with a statement."""

    def ended(self, target: TableWriter, statement: StatementRow) -> str:
        """Return the UPDATE by which Spark ends all rows that are valid. Asked of modes that keep such rows."""

    def cascaded(self, nulls: Sequence[str]) -> str:
        """Return how a MERGE of `gone` goes on behind the comparison of its keys: what it does to rows that a foreign
        key took (`gone.deleted`, by the loss `gtid`, `committed`, `sequence`), and the assignments for the others.
        """
