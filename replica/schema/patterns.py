"""Tables as people write them: `database.table`, where `*` stands for any text, and names in backquotes as they are.

In: text such as `shop.*`, ``` `my.shop`.`a*b` ```. Out: a `TablePattern` of its two parts, and a `TableMatcher` for
many. A name with a dot in it has to stand in backquotes, so that the text means one table; within backquotes `*` is
itself. `table_text` writes a name so that it is read as that name; usual names come out as `database.table`. Refused
with a ValueError, whose words go after the option's name: other text.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError
from replica.schema.text.naming import column_key, lowered

if TYPE_CHECKING:
    from collections.abc import Iterable

    TableName = tuple[str, str]
    from collections.abc import Collection

ANY: Final = "*"
_PART: Final = r"`((?:[^`]|``)+)`|\s*([^.`,\s][^.,]*)"
_PATTERN: Final = re.compile(rf"\s*(?:{_PART})\.(?:{_PART})\s*", re.DOTALL)
_NEXT: Final = re.compile(r"(?:\s*`(?:[^`]|``)*`(?=\s*[.,]|\s*$)\.?|[^,.]*\.?)*", re.DOTALL)
_PLAIN: Final = re.compile(r"[^\s.,*`](?:[^.,*`]*[^\s.,*`])?", re.DOTALL)
_BETWEEN: Final = "\0"  # in no name
_NOTHING: Final = r"(?!)"


class TablePattern(NamedTuple):
    """One pattern: of each part the texts that stand around its `*`."""

    database: tuple[str, ...]
    table: tuple[str, ...]

    @property
    def name(self) -> TableName | None:
        """The one table that it names; None if a part holds `*`."""
        return (self.database[0], self.table[0]) if self.database[1:] == self.table[1:] == () else None

    @property
    def one_database(self) -> str | None:
        """The database that it names; None if that holds `*`."""
        return self.database[0] if len(self.database) == 1 else None

    def __str__(self) -> str:
        """Return the one text of the pattern."""
        return f"{_written(self.database)}.{_written(self.table)}"


class TableMatcher:
    """The tables that several patterns select together. `databases`: of each the database, None if it holds `*`."""

    def __init__(self, patterns: tuple[TablePattern, ...]) -> None:
        pairs = [(_expression(one.database), _expression(one.table)) for one in patterns]
        self._tables = re.compile("|".join(map(_BETWEEN.join, pairs)) or _NOTHING, re.DOTALL)
        self.names: frozenset[TableName] = frozenset(one.name for one in patterns if one.name is not None)
        """The tables that are named, not selected by a pattern."""
        self.databases: tuple[str | None, ...] = tuple(dict.fromkeys(one.one_database for one in patterns))
        self._databases = re.compile("|".join(database for database, _ in pairs) or _NOTHING, re.DOTALL)

    def fits(self, name: TableName) -> bool:
        """Tell whether a pattern selects the table, as the binlog spells it."""
        return self._tables.fullmatch(_BETWEEN.join(name)) is not None

    def fits_database(self, database: str) -> bool:
        """Tell whether a pattern may select a table of this database."""
        return self._databases.fullmatch(database) is not None

    def covers(self, pattern: str) -> bool:
        """Tell whether one pattern here selects all that `pattern` does."""
        asked = table_pattern(pattern)
        return self._tables.fullmatch(_BETWEEN.join((ANY.join(asked.database), ANY.join(asked.table)))) is not None


class ColumnMatcher:
    """The columns that several names or patterns select, as the server compares names of columns."""

    def __init__(self, patterns: Iterable[str]) -> None:
        parts = (".*".join(map(re.escape, column_key(pattern).split(ANY))) for pattern in patterns)
        self._columns = re.compile("|".join(parts) or _NOTHING, re.DOTALL)

    def fits(self, name: str) -> bool:
        """Tell whether one of them selects the column."""
        return self._columns.fullmatch(column_key(name)) is not None


def refuse_capitals(patterns: Iterable[str]) -> None:
    """Refuse patterns that no table of a server fits that stores names of tables and databases in lower case.

    Raises:
        ConfigError: a pattern has a capital.
    """
    for pattern in patterns:
        if lowered(pattern) != pattern:
            raise ConfigError(
                f"no table is called {pattern}: the server stores the names of tables and databases in lower case "
                "(lower_case_table_names=1).",
                hint=f"Write {lowered(pattern)}.",
            )


def matcher(patterns: Iterable[str]) -> TableMatcher:
    """Return what selects the tables of these patterns."""
    return _matcher(tuple(patterns))


@functools.lru_cache(maxsize=1 << 10)
def _matcher(patterns: tuple[str, ...]) -> TableMatcher:
    return TableMatcher(tuple(map(table_pattern, patterns)))


@functools.lru_cache(maxsize=1 << 12)
def table_pattern(text: str) -> TablePattern:
    """Read one pattern.

    Raises:
        ValueError: it is none.
    """
    found = _PATTERN.fullmatch(text)
    if found is None:
        if text.count(".") > 1:
            raise ValueError("has several dots: write a name that holds a dot in backquotes, `my.shop`.orders")
        raise ValueError("is not of the form database.table (* stands for any text)")
    return TablePattern(_pieces(*found.group(1, 2)), _pieces(*found.group(3, 4)))


def table_named(text: str) -> TableName:
    """Read the name of one table.

    Raises:
        ValueError: it is none, or a pattern for many.
    """
    if (name := table_pattern(text).name) is None:
        raise ValueError("is a pattern for many tables, and one is wanted; a name that holds * stands in backquotes")
    return name


def table_patterns(text: str) -> tuple[str, ...]:
    """Read patterns with commas between them: 'shop.*, crm.customer'. Each comes back as its one text.

    Raises:
        ValueError: one is none.
    """
    parts = split_patterns(text)
    found = []
    for part in parts:
        try:
            found.append(str(table_pattern(part)))
        except ValueError as error:
            raise (error if len(parts) == 1 else ValueError(f"holds {part!r}, which {error}")) from None
    return tuple(found)


def split_patterns(text: str) -> list[str]:
    """Return the parts between commas; a comma in backquotes is part of a name."""
    parts, at = [], 0
    while True:
        end = match.end() if (match := _NEXT.match(text, at)) else at
        parts.append(text[at:end].strip())
        if end >= len(text):
            return parts
        at = end + 1


def all_of(database: str) -> str:
    """Return the pattern for all tables of a database."""
    return f"{_quoted(database)}.{ANY}"


def table_text(name: TableName) -> str:
    """Return the text of one table that `table_named` reads as it: as `database.table`, or with backquotes."""
    return f"{_quoted(name[0])}.{_quoted(name[1])}"


def _pieces(quoted: str | None, bare: str | None) -> tuple[str, ...]:
    return tuple((bare or "").strip().split(ANY)) if quoted is None else (quoted.replace("``", "`"),)


def _expression(pieces: tuple[str, ...]) -> str:
    return f"[^{_BETWEEN}]*".join(map(re.escape, pieces))


def _written(pieces: tuple[str, ...]) -> str:
    return _quoted(pieces[0]) if len(pieces) == 1 else ANY.join(pieces)


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else "`" + name.replace("`", "``") + "`"


# Copies of a table that tools make to change it online, told by their names.
#
# gh-ost fills `_t_gho`, keeps its notes in `_t_ghc` and its checkpoints in `_t_ghk`, and leaves the old table as
# `_t_del` (with a time in front of `del` where it is told so); pt-online-schema-change fills `_t_new` and leaves
# `_t_old`, with more underscores in front where a name is taken. The rows written into a copy are the table's own a
# second time; at the end one RENAME puts the copy in the table's place. Names are all there is: a table of one's own
# that is called so is taken for a copy.

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
