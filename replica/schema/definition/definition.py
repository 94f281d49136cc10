"""Table definition for replaying DDL: columns with their character sets, keys and versioning, as plain values.

`new_table` makes a `Table` from parsed columns (`ColumnItem`) and the table's defaults, and ALTER makes a new `Table`
from the previous one. `Table.schema` returns the `TableSchema` that decoders use. Column names are compared as in the
server, without case.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import SchemaError
from replica.protocol.charset import charset_named
from replica.rows.types.entry import Parentheses
from replica.rows.types.types import NAMES
from replica.schema.definition.column import (
    BLOBS,
    GEOMETRIES,
    TEXTS,
    Column,
    width_of,
    with_charset,
    with_default_width,
)
from replica.schema.table import ROW_PERIOD, ColumnSchema, TableSchema
from replica.schema.text.naming import column_key
from replica.schema.text.sql_tokens import ANY_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from replica.schema.text.sql_tokens import Token

# The smallest key limit of any engine (InnoDB's old row format): the server may keep a longer unique key as a hash.
_MAX_KEY_BYTES: Final = 767
PRIMARY: Final = "PRIMARY"
_UTF8: Final = "utf8"  # 3 bytes a character, or 4 from 10.6 on, by old_mode, which is not in the binlog


class Encoding(NamedTuple):
    """A character set and a collation by name.

    A charset of None is unknown; a collation of None is unknown or the default.
    """

    charset: str | None
    collation: str | None = None


UNKNOWN: Final = Encoding(None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnItem:
    """A column as declared, before its character set is resolved with the table's."""

    column: Column
    charset: str | None = None
    collation: str | None = None
    primary: bool = False
    unique: bool = False
    versioned: bool = False
    position: str | None = None  # in ALTER: '' is FIRST, otherwise the name after AFTER
    default: tuple[Token, ...] | None = None  # the tokens after DEFAULT, None without DEFAULT
    numbered: bool = False  # AUTO_INCREMENT
    unproven: str = ""  # an attribute that may change values in addition to the definition


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A primary or unique key. A period is a key of its two columns.

    A part is a column and the length of its prefix, None for the whole column.
    """

    name: str
    parts: tuple[tuple[str, int | None], ...]
    primary: bool = False
    hashed: bool = False  # USING HASH
    period: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    columns: tuple[Column, ...] = ()
    keys: tuple[Key, ...] = ()
    encoding: Encoding = UNKNOWN
    versioned: bool = False

    def place(self, name: str) -> int:
        """Return the index of a column.

        Raises:
            SchemaError: The table has no column of that name.
        """
        return place(self.columns, name)

    def schema(self, database: str, table: str) -> TableSchema:
        primary = next((key for key in self.keys if key.primary), Key(name="", parts=()))
        places = tuple(self.place(name) for name, _ in primary.parts)
        columns: Iterable[ColumnSchema] = (c.schema(key=i in places) for i, c in enumerate(self.columns))
        if self.versioned and not any(column.period for column in self.columns):
            columns = (*columns, *ROW_PERIOD)
        return TableSchema(
            database=database,
            table=table,
            columns=tuple(columns),
            primary_key=places,
            versioned=self.versioned,
            hash_keys=sum(self._may_be_hashed(key) for key in self.keys if not key.primary and not key.period),
            collation=self.encoding.collation or self.encoding.charset,
        )

    def _may_be_hashed(self, key: Key) -> bool:
        size = 0
        for name, prefix in key.parts:
            column = self.columns[self.place(name)]
            if prefix is None and column.data_type in (*TEXTS, *BLOBS, *GEOMETRIES):
                return True
            octets = column.octets or 8
            size += octets if prefix is None else min(octets, prefix * width_of(column.charset))
        return key.hashed or size > _MAX_KEY_BYTES


def place(columns: Iterable[Column], name: str, server_version: int = ANY_VERSION) -> int:
    """Return the index of the column that the server identifies by this name.

    Raises:
        SchemaError: The table has no column of that name.
    """
    wanted = column_key(name, server_version)
    for index, column in enumerate(columns):
        if column_key(column.name, server_version) == wanted:
            return index
    raise SchemaError(f"The table has no column {name}.")


def new_table(
    items: Iterable[ColumnItem],
    keys: Iterable[Key],
    encoding: Encoding,
    *,
    versioned: bool,
    server_version: int = ANY_VERSION,
) -> Table:
    """Make a table of declared columns. `server_version` decides how the server compared the names.

    Raises:
        SchemaError: Two columns have one name, or a key has an unknown column.
    """
    items = tuple(items)
    return with_keys(
        [with_encoding(item, encoding) for item in items],
        [*column_keys(items), *keys],
        encoding,
        versioned=versioned or any(item.versioned for item in items),
        server_version=server_version,
    )


def period_key(name: str) -> str:
    """Return the name under which a period is stored among the keys; WITHOUT OVERLAPS refers to it."""
    return f"PERIOD {column_key(name)}"


def with_keys(
    columns: Iterable[Column],
    keys: Sequence[Key],
    encoding: Encoding,
    *,
    versioned: bool,
    server_version: int = ANY_VERSION,
) -> Table:
    """Make the table of these parts; columns of the primary key and of periods become NOT NULL permanently.

    Keys name columns in the statement's spelling; the table's keys have the spelling of its columns.
    """
    columns = tuple(columns)
    names = {column_key(column.name, server_version): column.name for column in columns}
    if len(names) != len(columns):
        raise SchemaError("Two columns have the same name.")
    # In a key, WITHOUT OVERLAPS stands for the end of a period, then its start.
    periods = {key.name: key.parts[::-1] for key in keys if key.period}
    resolved = tuple(
        replace(key, parts=tuple(part for named in key.parts for part in periods.get(named[0], (named,))))
        for key in keys
    )
    resolved = tuple(
        replace(key, parts=tuple((names.get(column_key(name, server_version), name), size) for name, size in key.parts))
        for key in resolved
    )
    table = Table(columns=columns, keys=resolved, encoding=encoding, versioned=versioned)
    places = {table.place(name) for key in table.keys for name, _ in key.parts if key.primary or key.period}
    for key in table.keys:
        for name, _ in key.parts:
            table.place(name)
    return replace(
        table,
        columns=tuple(replace(c, nullable=False) if i in places else c for i, c in enumerate(table.columns)),
    )


def column_keys(items: Iterable[ColumnItem]) -> list[Key]:
    """Return the keys that the column declarations contain."""
    return [
        Key(
            name=PRIMARY if item.primary else item.column.name,
            parts=((item.column.name, None),),
            primary=item.primary,
        )
        for item in items
        if item.primary or item.unique
    ]


def with_encoding(item: ColumnItem, encoding: Encoding) -> Column:
    """Return the column with its own character set, otherwise with the table's."""
    column = with_default_width(item.column)
    if column.charset is not None and item.charset is None and item.collation is None:
        return with_charset(column, column.charset, column.collation)  # JSON and NCHAR imply a character set
    own = own_encoding(item.charset, item.collation, encoding)
    guessed = _UTF8 in (item.charset, (item.collation or "").split("_")[0])
    return with_charset(replace(column, guessed_width=guessed), *(own or encoding))


def own_encoding(charset: str | None, collation: str | None, default: Encoding) -> Encoding | None:
    """Return the encoding of CHARACTER SET and COLLATE; None if neither is given. DEFAULT stands for `default`."""
    if charset is None and collation is None:
        return None
    if charset == "default":
        charset = default.charset
        if collation is None:
            return Encoding(charset)
    if collation is None or collation == "default":
        return Encoding(_known(charset))
    family = collation.split("_")[0]
    if family == "uca1400":  # valid for several character sets: the context decides
        charset = _known(charset or default.charset)
        return Encoding(charset, f"{charset}_{collation}" if charset else None)
    named = _known(family)
    return Encoding(named, collation.replace(f"{_UTF8}_", "utf8mb3_", 1) if family == _UTF8 else collation)


def _known(charset: str | None) -> str | None:
    if charset is None or charset == "binary":
        return charset
    return charset_named(charset).name


# `table_of` makes a `Table` whose `schema` is the given `TableSchema`. The catalog lacks the columns of unique keys
# that are kept as hashes, so each such key is assumed to span all columns. No ALTER of a column removes the key then,
# so the table may seem to have more of these keys than it has. A declaration that no server prints is an error.


_DECLARED: Final = re.compile(r"[a-z0-9 ]+?(?:\((?P<digits>[0-9, ]+)\))?(?P<rest> .*)?", re.DOTALL)
_COUNTED: Final = frozenset(
    name.name for name in NAMES.values() if name.parentheses in (Parentheses.LENGTH, Parentheses.LENGTH_OR_1)
)
_COMPRESSED: Final = "COMPRESSED*/"


def table_of(schema: TableSchema) -> Table:
    """Return the definition of a table from the catalog, or from an earlier definition.

    Raises:
        SchemaError: No server prints a declaration like that of one of the columns.
    """
    shown = [column for column in schema.columns if not column.hidden]
    parts = tuple((column.name, None) for column in shown)
    keys = [Key(name=f"#{number}", parts=parts, hashed=True) for number in range(schema.hash_keys)]
    if schema.primary_key:
        parts = tuple((schema.columns[index].name, None) for index in schema.primary_key)
        keys.insert(0, Key(name=PRIMARY, parts=parts, primary=True))
    return Table(
        columns=tuple(map(_column, shown)),
        keys=tuple(keys),
        encoding=encoding_of(schema.collation),
        versioned=schema.versioned,
    )


def encoding_of(collation: str | None) -> Encoding:
    """Return the encoding of a collation, or of a character set, by name."""
    if collation is None:
        return Encoding(None)
    charset, _, rest = collation.partition("_")
    return Encoding({"utf8": "utf8mb3"}.get(charset, charset), collation if rest else None)


def _column(schema: ColumnSchema) -> Column:
    digits: tuple[int, ...] = ()
    rest = ""
    if schema.labels is None:
        declared = _DECLARED.fullmatch(schema.column_type)
        if declared is None:
            raise SchemaError(
                f"Column {schema.name} is declared as {schema.column_type}, which is not a type that a server prints."
            )
        digits = tuple(int(part) for part in (declared["digits"] or "").split(",") if part)
        rest = declared["rest"] or ""
    digits = digits or _digits(schema)
    counted = schema.data_type in _COUNTED
    return Column(
        name=schema.name,
        data_type=schema.data_type,
        length=digits[0] if counted and digits else None,
        digits=() if counted else digits,
        unsigned=schema.unsigned,
        zerofill=" zerofill" in rest,
        charset=schema.charset,
        collation=schema.collation,
        labels=schema.labels,
        nullable=schema.nullable,
        compressed=_COMPRESSED in rest,
        period=schema.period,
        comment=schema.comment,
        computed=schema.computed,
    )


def _digits(schema: ColumnSchema) -> tuple[int, ...]:
    """Return the numbers in parentheses after a type, from the catalog if the declaration omits them."""
    if schema.data_type == "decimal":
        return (schema.precision or 0, schema.scale or 0)
    if schema.data_type == "bit":
        return (schema.precision or 1,)
    if schema.data_type in ("char", "varchar", "binary", "varbinary") and schema.octets is not None:
        return (schema.octets // width_of(schema.charset),)
    return (schema.fsp,) if schema.fsp else ()
