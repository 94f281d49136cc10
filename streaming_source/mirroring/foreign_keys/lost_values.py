"""Values of a parent's referenced columns that a micro-batch deleted or changed.

In: the change rows of the parent, the columns that a foreign key refers to, and the event, DELETE or UPDATE. Out: each
combination of lost values, with the place of the last change that removed it. Losses in several replication domains are
in doubt, because the domains have no order.
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
"""Most rows in the driver: as Python objects they take some 100 MB. If there are more, the child table is re-snapshot.
"""

TRANSACTION_COLUMNS: Final = ("gtid", "committed")
"""Columns of a loss that modes with ended rows store."""

Place = tuple[int, int]
"""Place of a change in its domain: sequence number and ordinal."""


class TooManyRowsError(Exception):
    """Signal that more than MOST_ROWS rows are concerned."""


class Lost(NamedTuple):
    """Lost values: the columns v0, v1, …, and the `gtid` and `committed` of each loss.

    Lists have one entry for each row.
    """

    values: pa.Table
    at: list[Place]
    domain: list[int]
    doubt: list[bool]

    def of(self, chosen: Sequence[int]) -> Lost:
        """Return the losses at these row numbers, which may occur several times."""
        return Lost(
            self.values.take(numbers_of(chosen)),
            [self.at[row] for row in chosen],
            [self.domain[row] for row in chosen],
            [self.doubt[row] for row in chosen],
        )


def lost_values(rows: DataFrame, columns: Sequence[str], event: str) -> Lost:
    """Return the values that rows of the parent lost by `event`, DELETE or UPDATE.

    Raises:
        TooManyRowsError: there are more than MOST_ROWS changes.
    """
    from pyspark.sql import functions as f

    before, ended = f.col("before"), _ended()
    lost = f.when(ended, f.col("op") == "update").otherwise(f.col("op") == "delete")
    if event == "UPDATE":
        changed = reduce(or_, (~before[name].eqNullSafe(f.col("after")[name]) for name in columns))
        lost = (f.col("op") == "update") & ~ended & changed
    return latest_losses(collected(_with_places(rows.where(lost), before, columns)), len(columns))


def inserted_values(rows: DataFrame, columns: Sequence[str]) -> Lost:
    """Return the values of inserted rows as losses. An earlier row with these values was deleted before the insert.

    Raises:
        TooManyRowsError: there are more than MOST_ROWS.
    """
    from pyspark.sql import functions as f

    inserted = rows.where((f.col("op") == "insert") & ~_ended())
    return latest_losses(collected(_with_places(inserted, f.col("after"), columns)), len(columns))


def _ended() -> Column:
    """Return True for a change of an ended version (system versioning).

    The UPDATE that ends a row counts as its delete.
    """
    from pyspark.sql import functions as f

    return f.coalesce(f.col("history"), f.lit(False))


def _with_places(rows: DataFrame, image: Column, columns: Sequence[str]) -> DataFrame:
    return rows.select(*(image[name].alias(f"v{number}") for number, name in enumerate(columns)), *places())


def places() -> list[Column]:
    """Return the columns of a change's place (`number`, `ordinal`, `domain`), and its `gtid` and `committed`."""
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
    """Return rows in the driver.

    Raises:
        TooManyRowsError: there are more than MOST_ROWS.
    """
    found = rows.limit(MOST_ROWS + 1).toArrow()
    if found.num_rows > MOST_ROWS:
        raise TooManyRowsError
    return found


def latest_losses(losses: pa.Table, width: int) -> Lost:
    """Return the last loss of each combination of `width` values. Values with NULL refer to no row and are skipped."""
    values = list(zip(*(losses.column(f"v{number}").to_pylist() for number in range(width)), strict=True))
    places_of = change_places(losses)
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
        values=losses.select([*(f"v{number}" for number in range(width)), *TRANSACTION_COLUMNS]).take(numbers_of(kept)),
        at=[places_of[row][0] for row in kept],
        domain=[places_of[row][1] for row in kept],
        doubt=[len(domains[value]) > 1 for value in last],
    )


def change_places(changes: pa.Table) -> list[tuple[Place, int]]:
    """Return the place and the domain of each change."""
    columns: Iterable[list[Any]] = (changes.column(name).to_pylist() for name in ("number", "ordinal", "domain"))
    return [((int(number), ordinal), domain) for number, ordinal, domain in zip(*columns, strict=True)]


def numbers_of(rows: Sequence[int]) -> pa.Array:
    """Return row numbers as an Arrow array; Arrow cannot infer the type of an empty list."""
    import pyarrow as pa

    from replica.rows.types.arrow_arrays import array_of_values

    return array_of_values(rows, pa.int64())
