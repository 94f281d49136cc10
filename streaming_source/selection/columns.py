"""The columns that a query selects, by name or pattern, and the check that these exist.

The option `columns` has names and patterns with `*`, compared without regard to case, as MariaDB compares column names.
`column_matcher` returns a matcher of names. `check_columns` refuses a name or pattern that matches no column, with the
nearest name. resolver.py selects tables.
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
"""Most column names in a message. A table may have thousands."""


def column_matcher(patterns: Collection[str]) -> ColumnMatcher | None:
    """Return the matcher of selected columns; None without a pattern, which selects every column."""
    return ColumnMatcher(patterns) if patterns else None


def check_columns(patterns: Sequence[str], names: Iterable[str], where: str) -> None:
    """Refuse a name or pattern of the option `columns` that matches no column.

    Args:
        patterns: the option.
        names: all columns of the table, or of all selected tables.
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
