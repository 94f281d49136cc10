"""Gather the entries of all families: every type and every kind, by what they are looked up by.

The tables here are complete or this module does not load: a kind without an entry, one with two, a name or a word that
two types claim, is a TypeError that says which. A lacking field of an entry is one where the entry stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from replica.rows.types import (
    addresses,
    binary,
    decimals,
    floats,
    integers,
    labels,
    mysql_json,
    spatial,
    temporal,
    text,
    vector,
)
from replica.rows.types.kinds import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from replica.rows.types.entry import KindEntry, SqlName, TypeEntry

# Types that share a code are told apart by the catalog; a code alone stands for the first that fits (tables/plan.py).
_FAMILIES: Final = (
    integers, floats, decimals, temporal, labels, text, binary, spatial, addresses, vector, mysql_json,
)  # fmt: skip


def by_kind(entries: Iterable[KindEntry], kinds: Iterable[Kind]) -> Mapping[Kind, KindEntry]:
    """Sort the entries by their kinds; TypeError unless each kind has exactly one."""
    found: dict[Kind, KindEntry] = {}
    for entry in entries:
        if found.setdefault(entry.kind, entry) is not entry:
            raise TypeError(f"{entry.kind!r} has two entries")
    missing = [kind.name for kind in kinds if kind not in found]
    if missing:
        raise TypeError(f"no family under rows/types says what becomes of the kind {', '.join(missing)}")
    return found


def by_name(types: Iterable[TypeEntry]) -> Mapping[str, TypeEntry]:
    """Return the first type of each DATA_TYPE."""
    found: dict[str, TypeEntry] = {}
    for entry in types:
        for name in entry.names:
            found.setdefault(name.name, entry)
    return found


def by_word(names: Iterable[SqlName]) -> Mapping[str, SqlName]:
    """Sort the names by what is written for them in SQL; TypeError for a word that two of them claim."""
    found: dict[str, SqlName] = {}
    for name in names:
        for word in name.words:
            if found.setdefault(word, name).name != name.name:
                raise TypeError(f"the word {word} stands for {found[word].name} and for {name.name}")
    return found


KINDS: Final = by_kind((entry for family in _FAMILIES for entry in family.KINDS), Kind)
TYPES: Final[tuple[TypeEntry, ...]] = tuple(entry for family in _FAMILIES for entry in family.TYPES)
TYPE_OF_NAME: Final = by_name(TYPES)
NAMES: Final = {name.name: name for entry in reversed(TYPES) for name in entry.names}
WORDS: Final = by_word(NAMES.values())
