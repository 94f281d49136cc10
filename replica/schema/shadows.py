"""Copies of a table that tools make to change it online, told by their names.

gh-ost fills `_t_gho`, keeps its notes in `_t_ghc` and its checkpoints in `_t_ghk`, and leaves the old table as `_t_del`
(with a time in front of `del` where it is told so); pt-online-schema-change fills `_t_new` and leaves `_t_old`, with
more underscores in front where a name is taken. The rows written into a copy are the table's own a second time; at the
end one RENAME puts the copy in the table's place. Names are all there is: a table of one's own that is called so is
taken for a copy.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from replica.schema.patterns import matcher

if TYPE_CHECKING:
    from collections.abc import Collection

_COPY: Final = re.compile(
    r"_+(?P<table>.+?)_(?:gho|ghc|ghk|(?:\d{14}_)?del|new|old)", re.IGNORECASE | re.ASCII | re.DOTALL
)


def shadowed(table: str) -> str | None:
    """Return the table that `table` is a copy of, by its name; None if it is none."""
    match = _COPY.fullmatch(table)
    return match["table"] if match else None


def is_shadow(database: str, table: str, patterns: Collection[str]) -> bool:
    """Tell whether a table that `patterns` select is a copy of another that they select; a table that is named is
    none.
    """
    original = shadowed(table)
    selected = matcher(patterns)
    if original is None or (database, table) in selected.names:
        return False
    return selected.fits((database, original))
