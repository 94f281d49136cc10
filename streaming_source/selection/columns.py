"""The columns that a query asks for, by name or pattern, and the check that what it names is there.

In: the option `columns` (names and patterns with `*`, compared without regard to case, as MariaDB compares column
names) and the names that a table has. Out: a matcher of names, and the chosen names in the table's own order. Refused:
a name or pattern that no column has, with the nearest name. Tables are chosen by resolver.py.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Final

from replica.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHOWN: Final = 12
"""Column names in a message; a table may have thousands."""


def column_matcher(patterns: Iterable[str]) -> re.Pattern[str] | None:
    """Compile one expression for all patterns; None without any: then every column is asked for."""
    parts = [_expression(pattern) for pattern in patterns]
    return re.compile("|".join(parts), re.DOTALL | re.IGNORECASE) if parts else None


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
        if any(re.fullmatch(_expression(pattern), name, re.DOTALL | re.IGNORECASE) for name in there):
            continue
        near = difflib.get_close_matches(pattern.casefold(), [name.casefold() for name in there], n=1)
        match = next((name for name in there if near and name.casefold() == near[0]), "")
        shown = ", ".join(there[:SHOWN]) + (", …" if len(there) > SHOWN else "")
        raise SchemaError(
            f"option columns names {pattern}, a column that {where}.",
            hint=f"Did you mean {match}?" if match else f"There are {shown or 'none'}.",
        )


def _expression(pattern: str) -> str:
    return ".*".join(map(re.escape, pattern.split("*")))
