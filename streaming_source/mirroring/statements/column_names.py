"""Order of RENAME COLUMN actions on a target.

In: new names by old ones. Out: actions in an order in which each new name is free when it is given. Columns that swap
names use a temporary name. Names that differ only by case are one name for Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streaming_source.mirroring.writers.target_format import RenameColumn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PLACE: Final = "_renamed"
"""Prefix of temporary names."""


def renamed(names: Mapping[str, str], others: Collection[str] = ()) -> list[RenameColumn]:
    """Return the actions that rename columns.

    Args:
        names: the new names by the old ones.
        others: the columns that keep their names.
    """
    return [RenameColumn(old, new) for old, new in ordered(names, others)]


def ordered(names: Mapping[str, str], others: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return (old, new) names in an order in which each new name is free."""
    left = {old: new for old, new in names.items() if old != new}
    taken = {name.lower() for name in (*names, *others)}
    found: list[tuple[str, str]] = []
    while left:
        old = next((old for old, new in left.items() if new.lower() not in taken), None)
        if old is None:
            old = next(iter(left))
            number = next(n for n in range(len(taken) + 1) if f"{_PLACE}_{n}" not in taken)
            new = f"{_PLACE}_{number}"
            left[new] = left.pop(old)
        else:
            new = left.pop(old)
        found.append((old, new))
        taken = taken - {old.lower()} | {new.lower()}
    return found


def composed(names: Mapping[str, str], earlier: Mapping[str, str]) -> dict[str, str]:
    """Return the names before two statements by those after them; `names`: of the second; `earlier`: of the first."""
    return {new: earlier[old] for new, old in names.items() if old in earlier}
