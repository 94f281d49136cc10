"""Definition of a table as in the server's catalog: plain values, picklable, no I/O.

Row images of a server with `binlog_row_metadata=NO_LOG` (the default) have only type codes. The definition adds names,
signedness, character sets, ENUM and SET labels, and keys. Lengths and precisions show whether the definition still fits
the rows, so that a changed table is detected and never guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from replica.schema.patterns import table_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """One column. Attributes that do not apply to the type are None.

    `data_type` is the bare type name in lower case, `column_type` the declaration in the server's spelling.
    """

    name: str
    data_type: str
    column_type: str
    nullable: bool = True
    unsigned: bool = False
    charset: str | None = None  # None if the column is not text; 'binary' only for ENUM and SET
    collation: str | None = None
    labels: tuple[str, ...] | None = None  # of ENUM and SET, in their order
    octets: int | None = None  # longest value in bytes: CHAR, VARCHAR, BINARY, VARBINARY, TEXT and BLOB types
    precision: int | None = None  # DECIMAL: digits in all; BIT: bits
    scale: int | None = None  # DECIMAL: digits after the point
    fsp: int | None = None  # fractional digits of TIME, DATETIME and TIMESTAMP
    key: bool = False  # part of the primary key
    period: Literal["start", "end"] | None = None  # GENERATED ALWAYS AS ROW START / ROW END of a versioned table
    hidden: bool = False  # added by the server: SELECT * and information_schema do not show it
    comment: str = ""
    computed: bool = field(default=False, compare=False)  # a generated column


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One table. `columns` are in table order; `primary_key` has column indexes in key order, empty without a key.

    A versioned table without declared columns for the row period ends with `ROW_PERIOD`.
    """

    database: str
    table: str
    columns: tuple[ColumnSchema, ...]
    primary_key: tuple[int, ...] = ()
    versioned: bool = False  # system-versioned
    hash_keys: int = 0  # unique keys too long for an index: maximal number of hidden hash columns in row images
    collation: str | None = None  # of columns that are added without one; None if it is unknown

    @property
    def name(self) -> str:
        """Name as text, in backquotes if it would otherwise be ambiguous."""
        return table_text((self.database, self.table))


_PERIOD: tuple[tuple[str, Literal["start", "end"]], ...] = (("row_start", "start"), ("row_end", "end"))
ROW_PERIOD = tuple(
    ColumnSchema(
        name=name,
        data_type="timestamp",
        column_type="timestamp(6)",
        nullable=False,
        fsp=6,
        period=period,
        hidden=True,
    )
    for name, period in _PERIOD
)
"""Columns that WITH SYSTEM VERSIONING adds to a table without a declared period (`Vers_parse_info::fix_implicit`)."""
