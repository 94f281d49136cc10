"""Table patterns in configuration: `database.table`, where `*` matches any text, and names in backquotes are literal.

`table_pattern` parses text such as `shop.*` or ``` `my.shop`.`a*b` ``` into a `TablePattern`. A `TableMatcher` matches
several patterns. A name with a dot must be in backquotes, so that the text is unambiguous; in backquotes `*` is
literal. `table_text` writes a name so that it is parsed as that name; usual names become `database.table`. Other text
is a ValueError, whose message follows the option's name.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import ConfigError
from replica.schema.text.naming import column_key, lowered, quoted

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    TableName = tuple[str, str]

ANY: Final = "*"
_PART: Final = r"`((?:[^`]|``)+)`|\s*([^.`,\s][^.,]*)"
_PATTERN: Final = re.compile(rf"\s*(?:{_PART})\.(?:{_PART})\s*", re.DOTALL)
_NEXT: Final = re.compile(r"(?:\s*`(?:[^`]|``)*`(?=\s*[.,]|\s*$)\.?|[^,.]*\.?)*", re.DOTALL)
_PLAIN: Final = re.compile(r"[^\s.,*`](?:[^.,*`]*[^\s.,*`])?", re.DOTALL)
_BETWEEN: Final = "\0"  # no name contains this character
_NOTHING: Final = r"(?!)"


class TablePattern(NamedTuple):
    """One pattern: for each part, the texts around its `*`."""

    database: tuple[str, ...]
    table: tuple[str, ...]

    @property
    def name(self) -> TableName | None:
        """The single table that the pattern names; None if a part contains `*`."""
        return (self.database[0], self.table[0]) if self.database[1:] == self.table[1:] == () else None

    @property
    def one_database(self) -> str | None:
        """The database that the pattern names; None if that part contains `*`."""
        return self.database[0] if len(self.database) == 1 else None

    def __str__(self) -> str:
        """Return the canonical text of the pattern."""
        return f"{_written(self.database)}.{_written(self.table)}"


class TableMatcher:
    """Tables that several patterns select together.

    `databases` has the distinct databases of the patterns, None for one that contains `*`.
    """

    def __init__(self, patterns: tuple[TablePattern, ...]) -> None:
        pairs = [(_expression(one.database), _expression(one.table)) for one in patterns]
        self._tables = re.compile("|".join(map(_BETWEEN.join, pairs)) or _NOTHING, re.DOTALL)
        self.names: frozenset[TableName] = frozenset(one.name for one in patterns if one.name is not None)
        """Tables that a pattern names without `*`."""
        self.databases: tuple[str | None, ...] = tuple(dict.fromkeys(one.one_database for one in patterns))
        self._databases = re.compile("|".join(database for database, _ in pairs) or _NOTHING, re.DOTALL)

    def fits(self, name: TableName) -> bool:
        """Return True if a pattern selects the table, as the binlog spells it."""
        return self._tables.fullmatch(_BETWEEN.join(name)) is not None

    def fits_database(self, database: str) -> bool:
        """Return True if a pattern may select a table of this database."""
        return self._databases.fullmatch(database) is not None

    def covers(self, pattern: str) -> bool:
        """Return True if one pattern here selects every table that `pattern` selects."""
        parsed = table_pattern(pattern)
        return self._tables.fullmatch(_BETWEEN.join((ANY.join(parsed.database), ANY.join(parsed.table)))) is not None


class ColumnMatcher:
    """Columns that several names or patterns select, by the server's comparison of column names."""

    def __init__(self, patterns: Iterable[str]) -> None:
        parts = (".*".join(map(re.escape, column_key(pattern).split(ANY))) for pattern in patterns)
        self._columns = re.compile("|".join(parts) or _NOTHING, re.DOTALL)

    def fits(self, name: str) -> bool:
        """Return True if a pattern selects the column."""
        return self._columns.fullmatch(column_key(name)) is not None


def refuse_capitals(patterns: Iterable[str]) -> None:
    """Refuse patterns with capitals, for a server that stores the names of tables and databases in lower case.

    Raises:
        ConfigError: A pattern has a capital, so no table matches it.
    """
    for pattern in patterns:
        if lowered(pattern) != pattern:
            raise ConfigError(
                f"no table is called {pattern}: the server stores the names of tables and databases in lower case "
                "(lower_case_table_names=1).",
                hint=f"Write {lowered(pattern)}.",
            )


def matcher(patterns: Iterable[str]) -> TableMatcher:
    """Return the matcher of these patterns."""
    return _matcher(tuple(patterns))


@functools.lru_cache(maxsize=1 << 10)
def _matcher(patterns: tuple[str, ...]) -> TableMatcher:
    return TableMatcher(tuple(map(table_pattern, patterns)))


@functools.lru_cache(maxsize=1 << 12)
def table_pattern(text: str) -> TablePattern:
    """Parse one pattern.

    Raises:
        ValueError: The text is not a pattern.
    """
    found = _PATTERN.fullmatch(text)
    if found is None:
        if text.count(".") > 1:
            raise ValueError("has several dots: write a name that holds a dot in backquotes, `my.shop`.orders")
        raise ValueError("is not of the form database.table (* stands for any text)")
    return TablePattern(_pieces(*found.group(1, 2)), _pieces(*found.group(3, 4)))


def table_named(text: str) -> TableName:
    """Parse the name of one table.

    Raises:
        ValueError: The text is not a name, or is a pattern for many tables.
    """
    if (name := table_pattern(text).name) is None:
        raise ValueError(
            "is a pattern for many tables, but must name one table; write a name that holds * in backquotes"
        )
    return name


def table_patterns(text: str) -> tuple[str, ...]:
    """Parse patterns that commas separate: 'shop.*, crm.customer'. Each is returned as its canonical text.

    Raises:
        ValueError: A part is not a pattern.
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
    """Return the text that `table_named` parses as this name: `database.table`, with backquotes if needed."""
    return f"{_quoted(name[0])}.{_quoted(name[1])}"


def _pieces(quoted: str | None, bare: str | None) -> tuple[str, ...]:
    return tuple((bare or "").strip().split(ANY)) if quoted is None else (quoted.replace("``", "`"),)


def _expression(pieces: tuple[str, ...]) -> str:
    return f"[^{_BETWEEN}]*".join(map(re.escape, pieces))


def _written(pieces: tuple[str, ...]) -> str:
    return _quoted(pieces[0]) if len(pieces) == 1 else ANY.join(pieces)


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else quoted(name)


# Copies of a table that online schema change tools make, recognised by their names.
#
# gh-ost fills `_t_gho`, keeps its notes in `_t_ghc` and its checkpoints in `_t_ghk`, and leaves the old table as
# `_t_del` (optionally with a time before `del`). pt-online-schema-change fills `_t_new` and leaves `_t_old`, with more
# underscores before it if the name exists. A copy repeats the table's own rows, and at the end one RENAME replaces the
# table with the copy. Only names identify copies, so a user's table with such a name counts as a copy.

_COPY: Final = re.compile(
    r"_+(?P<table>.+?)_(?:gho|ghc|ghk|(?:\d{14}_)?del|new|old)", re.IGNORECASE | re.ASCII | re.DOTALL
)


def shadowed(table: str) -> str | None:
    """Return the table that `table` is a copy of, by its name; None if it is not a copy."""
    match = _COPY.fullmatch(table)
    return match["table"] if match else None


def is_shadow(database: str, table: str, patterns: Collection[str]) -> bool:
    """Return True if a selected table is a copy of another selected table.

    A table that a pattern names explicitly is never a copy.
    """
    original = shadowed(table)
    selected = matcher(patterns)
    if original is None or (database, table) in selected.names:
        return False
    return selected.fits((database, original))
