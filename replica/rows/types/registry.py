"""Registry of all types and kinds, with the lookup tables by kind, name and SQL spelling.

Loading this module checks that the tables are complete. A kind with no entry or with two, and a spelling that two types
claim, raise a TypeError. So does an entry that lacks a field, in the module of its family.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.rows.types.kinds import Kind
from replica.rows.types.values import binary, numbers, temporal, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.rows.types.entry import KindEntry, SqlName, TypeEntry

# The catalog distinguishes types that share a code. Without it, a code means the first type that fits (tables/plan.py).
_FAMILIES: Final = (numbers, temporal, text, binary)


def by_kind(entries: Iterable[KindEntry], kinds: Iterable[Kind]) -> Mapping[Kind, KindEntry]:
    """Return the entries by kind.

    Raises:
        TypeError: A kind has no entry, or two.
    """
    found: dict[Kind, KindEntry] = {}
    for entry in entries:
        if found.setdefault(entry.kind, entry) is not entry:
            raise TypeError(f"{entry.kind!r} has two entries")
    missing = [kind.name for kind in kinds if kind not in found]
    if missing:
        raise TypeError(f"no family under rows/types/values handles the kind {', '.join(missing)}")
    return found


def by_name(types: Iterable[TypeEntry]) -> Mapping[str, TypeEntry]:
    """Return the first type of each DATA_TYPE."""
    found: dict[str, TypeEntry] = {}
    for entry in types:
        for name in entry.names:
            found.setdefault(name.name, entry)
    return found


def by_keyword(names: Iterable[SqlName]) -> Mapping[str, SqlName]:
    """Return the names by their spelling in SQL.

    Raises:
        TypeError: Two names claim one spelling.
    """
    found: dict[str, SqlName] = {}
    for name in names:
        for keyword in name.keywords:
            if found.setdefault(keyword, name).name != name.name:
                raise TypeError(f"the word {keyword} stands for {found[keyword].name} and for {name.name}")
    return found


KINDS: Final = by_kind((entry for family in _FAMILIES for entry in family.KINDS), Kind)
TYPES: Final[tuple[TypeEntry, ...]] = tuple(entry for family in _FAMILIES for entry in family.TYPES)
TYPE_OF_NAME: Final = by_name(TYPES)
NAMES: Final = {name.name: name for entry in reversed(TYPES) for name in entry.names}
KEYWORDS: Final = by_keyword(NAMES.values())
