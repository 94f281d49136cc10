"""The columns that a query asks for, by name or pattern, and the check that what it names is there.

In: the option `columns` (names and patterns with `*`, compared without regard to case, as MariaDB compares column
names) and the names that a table has. Out: a matcher of names, and the chosen names in the table's own order. Refused:
a name or pattern that no column has, with the nearest name. Tables are chosen by resolver.py.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError
from replica.schema.patterns import ColumnMatcher
from replica.schema.text.naming import column_key

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

SHOWN: Final = 12
"""Column names in a message; a table may have thousands."""


def column_matcher(patterns: Collection[str]) -> ColumnMatcher | None:
    """Return what selects the columns; None without any pattern: then every column is asked for."""
    return ColumnMatcher(patterns) if patterns else None


def check_columns(patterns: Sequence[str], names: Iterable[str], where: str) -> None:
    """Refuse what the option columns names and no column has.

    Args:
        patterns: the option.
        names: all columns there are, of the table or of all selected tables.
        where: the end of the message: "shop.orders does not have".

    Raises:
        SchemaError: with the nearest name.
    """
    there = list(dict.fromkeys(names))
    for pattern in patterns:
        if any(map(ColumnMatcher([pattern]).fits, there)):
            continue
        near = difflib.get_close_matches(column_key(pattern), map(column_key, there), n=1)
        match = next((name for name in there if near and column_key(name) == near[0]), "")
        shown = ", ".join(there[:SHOWN]) + (", …" if len(there) > SHOWN else "")
        raise SchemaError(
            f"option columns names {pattern}, a column that {where}.",
            hint=f"Did you mean {match}?" if match else f"There are {shown or 'none'}.",
        )
