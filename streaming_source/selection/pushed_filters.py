"""Conditions of a batch read that the source applies: on the operation, the table, and properties of a transaction.

`push_filters` takes the filters that Spark pushes (spark.sql.python.filterPushdown.enabled=true). It accepts filters on
op, database, table, on columns of `transaction` that all its rows share, and on their flat names. It returns a
`ChangeFilter`, plain values that are pickled into tasks, and the filters that Spark still has to apply. Whole
transactions are dropped before decoding, rows of other operations and tables are skipped, and ranges without matching
transactions are not read. The filter does not change the values of other columns, above all `transaction.is_last`.

A filter never raises an error: Spark gets back each filter that the source does not understand exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import datasource as spark

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    import numpy.typing as npt

    from replica.rows.decode.batch import Groups

OPERATIONS: Final = ("insert", "update", "delete")
"""The operations of row changes, in the order of the decoder's numbers."""
ROW_FIELDS: Final = frozenset({"op", "database", "table"})
GROUP_FIELDS: Final = frozenset({"domain_id", "server_id", "sequence_number", "commit_timestamp"})
_FLAT_NAMES: Final = {
    "_change_type": "change_type",
    "_commit_version": "sequence_number",
    "_commit_timestamp": "commit_timestamp",
    "_gtid": "gtid",
}
_CHANGE_TYPES: Final = (("insert",), ("update_preimage", "update_postimage"), ("delete",))
_GTID: Final = re.compile(r"(0|[1-9]\d{0,9})-(0|[1-9]\d{0,9})-(0|[1-9]\d{0,18})")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_LARGEST: Final = (1 << 63) - 1  # of a BIGINT
_SECOND: Final = 1_000_000

Test = Callable[[Any, Any], bool]
_TESTS: Final[dict[str, Test]] = {
    "EqualTo": lambda mine, value: mine == value,
    "EqualNullSafe": lambda mine, value: mine == value,
    "GreaterThan": lambda mine, value: mine > value,
    "GreaterThanOrEqual": lambda mine, value: mine >= value,
    "LessThan": lambda mine, value: mine < value,
    "LessThanOrEqual": lambda mine, value: mine <= value,
    "In": lambda mine, value: mine in value,
    "StringStartsWith": lambda mine, value: mine.startswith(value),
    "StringEndsWith": lambda mine, value: mine.endswith(value),
    "StringContains": lambda mine, value: value in mine,
}
_OF_RANGES: Final[dict[str, Callable[[int, int, Any], bool]]] = {
    "EqualTo": lambda low, high, value: low <= value <= high,
    "EqualNullSafe": lambda low, high, value: low <= value <= high,
    "GreaterThan": lambda _, high, value: high > value,
    "GreaterThanOrEqual": lambda _, high, value: high >= value,
    "LessThan": lambda low, _, value: low < value,
    "LessThanOrEqual": lambda low, _, value: low <= value,
    "In": lambda low, high, value: any(low <= one <= high for one in value),
}


@dataclass(frozen=True)
class Condition:
    """One condition, which NULL never passes.

    Attributes:
        test: the name of Spark's filter class.
        value: the value to compare with. Timestamps are microseconds since 1970.
    """

    field: str
    test: str
    value: Any
    negated: bool = False

    def passes(self, mine: object) -> bool:
        return mine is not None and _TESTS[self.test](mine, self.value) != self.negated

    def mask(self, mine: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.bool_]:
        """Return the mask of the numbers that pass."""
        import numpy as np

        # With a signed list, numpy would compare large unsigned numbers as floats.
        value = np.array([one for one in self.value if one >= 0], mine.dtype) if self.test == "In" else self.value
        found = np.isin(mine, value) if self.test == "In" else _TESTS[self.test](mine, value)
        return np.asarray(found, np.bool_) != self.negated

    def may_pass(self, low: int, high: int) -> bool:
        """Return True if any number from `low` to `high` could pass."""
        if not self.negated:
            return _OF_RANGES[self.test](low, high, self.value)
        return any(self.passes(mine) for mine in (low, high)) or (self.test in ("In", "EqualTo") and high > low + 1)


@dataclass(frozen=True)
class ChangeFilter:
    """Filter of several conditions. A row passes if it passes all conditions."""

    conditions: tuple[Condition, ...]

    def operations(self, database: str, table: str) -> int:
        """Return the operations of a table that pass, one bit each, in the order of OPERATIONS."""
        if not self._names(database, table):
            return 0
        return sum(1 << number for number in range(len(OPERATIONS)) if self._operation(number))

    def passes_ddl(self, database: str | None, table: str | None) -> bool:
        """Return True if the names of a row of DDL pass."""
        return self._names(database, table)

    def groups(self, groups: Groups) -> npt.NDArray[np.bool_]:
        """Return a mask of the transactions of a range whose rows pass."""
        import numpy as np

        columns = {
            "domain_id": groups.domain,
            "server_id": groups.server_id,
            "sequence_number": groups.sequence_numbers,
            "commit_timestamp": groups.commit_ts * _SECOND,
        }
        left = np.ones(len(groups), np.bool_)
        for condition in self.conditions:
            if condition.field in columns:
                left &= condition.mask(columns[condition.field])
        return left

    def may_match(self, extent: GroupExtent) -> bool:
        """Return False only if no row of a range with these transactions can pass."""
        times = self._of("commit_timestamp")
        if extent.seconds is not None:
            first, last = (second * _SECOND for second in extent.seconds)
            if not all(condition.may_pass(first, last) for condition in times):
                return False
        return any(
            all(condition.may_pass(domain, domain) for condition in self._of("domain_id"))
            and all(condition.may_pass(low, high) for condition in self._of("sequence_number"))
            for domain, low, high in extent.domains
        )

    def _of(self, field: str) -> list[Condition]:
        return [condition for condition in self.conditions if condition.field == field]

    def _names(self, database: str | None, table: str | None) -> bool:
        names = {"database": database, "table": table}
        return all(c.passes(names[c.field]) for c in self.conditions if c.field in names)

    def _operation(self, number: int) -> bool:
        return all(c.passes(OPERATIONS[number]) for c in self._of("op")) and any(
            all(c.passes(name) for c in self._of("change_type")) for name in _CHANGE_TYPES[number]
        )


def push_filters(
    filters: Iterable[spark.Filter], *, flat: bool, ddl: bool = False
) -> tuple[ChangeFilter | None, list[spark.Filter]]:
    """Divide the filters into those of the source (None if there are none) and those that Spark has to apply.

    The second list has the given objects. With `ddl`, statements come as rows. Then Spark applies filters on
    operations, because the row changes after a statement decide whether it is the last row of its transaction.
    """
    conditions: list[Condition] = []
    left: list[spark.Filter] = []
    for given in filters:
        understood = [c for c in _conditions(given, flat=flat) if not (ddl and c.field == "op")]
        conditions += understood
        if not understood or not _exact(understood):
            left.append(given)
    return (ChangeFilter(tuple(conditions)) if conditions else None), left


def _exact(conditions: Sequence[Condition]) -> bool:
    """Return True if Spark has nothing left to apply, because both rows of a flat update pass or fail together."""
    return all(
        len({condition.passes(name) for name in names}) == 1
        for condition in conditions
        if condition.field == "change_type"
        for names in _CHANGE_TYPES
    )


def _conditions(given: spark.Filter, *, flat: bool) -> list[Condition]:
    """Turn one filter into conditions; an empty list if Spark has to apply it."""
    negated = isinstance(given, spark.Not)
    inner: Any = given.child if isinstance(given, spark.Not) else given
    test = type(inner).__name__
    if test not in _TESTS or (negated and test == "EqualNullSafe"):  # EqualNullSafe lets NULL pass
        return []
    field = _field(inner.attribute, flat=flat)
    if field == "gtid":
        return _of_gtid(inner.value) if test == "EqualTo" and not negated else []
    value = _value(field, test, inner.value)
    return [] if value is None else [Condition(field, test, value, negated)]


def _field(path: Sequence[str], *, flat: bool) -> str:
    """Return the field of a column; '' for columns that differ within a transaction."""
    if flat:
        return _FLAT_NAMES.get(path[0], "") if len(path) == 1 else ""
    if len(path) == 1:
        return path[0] if path[0] in ROW_FIELDS else ""
    known = len(path) == 2 and path[0] == "transaction" and path[1] in GROUP_FIELDS | {"gtid"}
    return path[1] if known else ""


def _value(field: str, test: str, value: Any) -> Any:
    """Return the value to compare with, in the unit of the field; None if it has another type."""
    if test == "In":
        items = tuple(_value(field, "EqualTo", item) for item in value)
        return None if None in items else items
    if field == "commit_timestamp":
        aware = isinstance(value, datetime) and value.tzinfo is not None
        return (value - _EPOCH) // _MICROSECOND if aware else None
    if field in GROUP_FIELDS:
        return (
            value if isinstance(value, int) and not isinstance(value, bool) and not test.startswith("String") else None
        )
    return value if isinstance(value, str) and field else None


def _of_gtid(value: object) -> list[Condition]:
    match = _GTID.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[3]) > _LARGEST:
        return []
    names = ("domain_id", "server_id", "sequence_number")
    return [Condition(name, "EqualTo", int(part)) for name, part in zip(names, match.groups(), strict=True)]


# `extent_of` takes the groups of a range from the planner's scan, and returns a `GroupExtent` of plain values that can
# be pickled. Commit times are the seconds in which groups ended. They need not rise with the sequence numbers, so both
# ends are kept.


class GroupExtent(NamedTuple):
    """Extent of the transactions of a range: (domain, lowest, highest sequence number) of each of its domains.

    Attributes:
        seconds: the earliest and the latest commit, in seconds since 1970; None if unknown.
    """

    domains: tuple[tuple[int, int, int], ...]
    seconds: tuple[int, int] | None = None

    def joined(self, other: GroupExtent) -> GroupExtent:
        """Return the extent of both ranges together."""
        ends = {domain: (low, high) for domain, low, high in self.domains}
        for domain, low, high in other.domains:
            mine = ends.get(domain, (low, high))
            ends[domain] = min(low, mine[0]), max(high, mine[1])
        seconds = None
        if self.seconds is not None and other.seconds is not None:
            seconds = min(self.seconds[0], other.seconds[0]), max(self.seconds[1], other.seconds[1])
        return GroupExtent(tuple((domain, *pair) for domain, pair in sorted(ends.items())), seconds)


def extent_of(groups: Groups) -> GroupExtent:
    """Return the extent of at least one group."""
    import numpy as np

    domains = []
    for domain in np.unique(groups.domain).tolist():
        numbers = groups.sequence_numbers[groups.domain == domain]
        domains.append((domain, int(numbers.min()), int(numbers.max())))
    return GroupExtent(tuple(domains), (int(groups.commit_ts.min()), int(groups.commit_ts.max())))
