"""The values by which rows of other tables named rows of a parent, and that these lost in a batch.

In: the change rows of the parent, the columns that a foreign key refers to, which event cascades. Out: each combination
of values, with the place of the last change that took it away. `doubt`: changes of several domains did, and these have
no order.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

MOST_ROWS: Final = 500_000
"""Rows that the driver takes: some 100 MB as Python has them. A transaction that deletes more is work for a reading of
its table."""

TOLD: Final = ("gtid", "committed")
"""What modes that keep rows say of a loss."""

Place = tuple[int, int]
"""The place of a change in its domain: sequence number and ordinal."""


class TooManyRowsError(Exception):
    """Says that more than MOST_ROWS rows are concerned."""


class Lost(NamedTuple):
    """Lost values: a row of `values` each, columns v0, v1, …, and `gtid` and `committed` of the loss. The lists have an
    entry a row.
    """

    values: pa.Table
    at: list[Place]
    domain: list[int]
    doubt: list[bool]

    def of(self, chosen: Sequence[int]) -> Lost:
        """Return some of the losses, also one several times."""
        return Lost(
            self.values.take(numbers_of(chosen)),
            [self.at[row] for row in chosen],
            [self.domain[row] for row in chosen],
            [self.doubt[row] for row in chosen],
        )


def lost_values(rows: DataFrame, columns: Sequence[str], event: str) -> Lost:
    """Return what rows of the parent lost by `event`, DELETE or UPDATE.

    Raises:
        TooManyRowsError: there are more than MOST_ROWS changes.
    """
    from pyspark.sql import functions as f

    before, ended = f.col("before"), _ended()
    lost = f.when(ended, f.col("op") == "update").otherwise(f.col("op") == "delete")
    if event == "UPDATE":
        changed = reduce(or_, (~before[name].eqNullSafe(f.col("after")[name]) for name in columns))
        lost = (f.col("op") == "update") & ~ended & changed
    return latest_losses(collected(_told(rows.where(lost), before, columns)), len(columns))


def inserted_values(rows: DataFrame, columns: Sequence[str]) -> Lost:
    """Return the values of rows that were inserted, each as lost there at the latest: a row of these values, if there
    was one, had gone before.

    Raises:
        TooManyRowsError: there are more than MOST_ROWS.
    """
    from pyspark.sql import functions as f

    inserted = rows.where((f.col("op") == "insert") & ~_ended())
    return latest_losses(collected(_told(inserted, f.col("after"), columns)), len(columns))


def _ended() -> Column:
    """Tell whether a change is of a version that is over, of a system-versioned table: an update that ends the row's
    own is its delete.
    """
    from pyspark.sql import functions as f

    return f.coalesce(f.col("history"), f.lit(False))


def _told(rows: DataFrame, image: Column, columns: Sequence[str]) -> DataFrame:
    return rows.select(*(image[name].alias(f"v{number}") for number, name in enumerate(columns)), *places())


def places() -> list[Column]:
    """Return the place of a change row: `number`, `ordinal`, `domain`; and what is told of it: `gtid`, `committed`."""
    from pyspark.sql import functions as f

    names = {
        "number": "sequence_number",
        "ordinal": "ordinal",
        "domain": "domain_id",
        "gtid": "gtid",
        "committed": "commit_timestamp",
    }
    return [f.col(f"transaction.{name}").alias(alias) for alias, name in names.items()]


def collected(rows: DataFrame) -> pa.Table:
    """Return rows as the driver has them.

    Raises:
        TooManyRowsError: there are more than MOST_ROWS.
    """
    found = rows.limit(MOST_ROWS + 1).toArrow()
    if found.num_rows > MOST_ROWS:
        raise TooManyRowsError
    return found


def latest_losses(told: pa.Table, width: int) -> Lost:
    """Reduce changes to the last loss of each combination of `width` values. A NULL refers to no row."""
    values = list(zip(*(told.column(f"v{number}").to_pylist() for number in range(width)), strict=True))
    places_of = told_places(told)
    last: dict[tuple[Any, ...], int] = {}
    domains: dict[tuple[Any, ...], set[int]] = {}
    for row, (value, (at, domain)) in enumerate(zip(values, places_of, strict=True)):
        if None in value:
            continue
        domains.setdefault(value, set()).add(domain)
        if value not in last or places_of[last[value]][0] < at:
            last[value] = row
    kept = list(last.values())
    return Lost(
        values=told.select([*(f"v{number}" for number in range(width)), *TOLD]).take(numbers_of(kept)),
        at=[places_of[row][0] for row in kept],
        domain=[places_of[row][1] for row in kept],
        doubt=[len(domains[value]) > 1 for value in last],
    )


def told_places(told: pa.Table) -> list[tuple[Place, int]]:
    """Return the place and the domain of each change."""
    columns: Iterable[list[Any]] = (told.column(name).to_pylist() for name in ("number", "ordinal", "domain"))
    return [((int(number), ordinal), domain) for number, ordinal, domain in zip(*columns, strict=True)]


def numbers_of(rows: Sequence[int]) -> pa.Array:
    """Return numbers of rows as Arrow takes them; of an empty list it would not know the type."""
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of_values

    return array_of_values(rows, pa.int64())
