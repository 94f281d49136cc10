"""Tables by pattern: `database.table`, where `*` stands for any text, in the database and in the table alike."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def matcher(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile one expression for all patterns; it has to match all of `database.table`, as the binlog spells them."""
    return re.compile("|".join(".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns), re.DOTALL)
