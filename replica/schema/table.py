"""The definition of a table, as the server's catalog tells it: plain values, picklable, no I/O.

Row images of a server with `binlog_row_metadata=NO_LOG` (the default) carry type codes and nothing else. What they lack
(names, signedness, character sets, ENUM and SET labels, keys) comes from here. Lengths and precisions are kept too, so
that a table whose definition changed since is noticed and never guessed at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from replica.schema.patterns import table_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnSchema:
    """One column. `data_type` is the bare type name in lower case, `column_type` the declaration as the server has it.

    What does not apply to the type is None.
    """

    name: str
    data_type: str
    column_type: str
    nullable: bool = True
    unsigned: bool = False
    charset: str | None = None  # None for what is not text; 'binary' never stands here
    collation: str | None = None
    labels: tuple[str, ...] | None = None  # of ENUM and SET, in their order
    octets: int | None = None  # longest value in bytes: CHAR, VARCHAR, BINARY, VARBINARY, TEXT and BLOB types
    precision: int | None = None  # DECIMAL: digits in all; BIT: bits
    scale: int | None = None  # DECIMAL: digits after the point
    fsp: int | None = None  # fractional digits of TIME, DATETIME and TIMESTAMP
    key: bool = False  # part of the primary key
    period: Literal["start", "end"] | None = None  # GENERATED ALWAYS AS ROW START / ROW END of a versioned table
    hidden: bool = False  # the server's own: SELECT * and information_schema do not show it
    comment: str = ""
    computed: bool = field(default=False, compare=False)  # a generated column


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """One table. `columns` in table order; `primary_key` holds column indexes in key order, empty without a key.

    A table that is versioned without columns of its own for the row period ends with `ROW_PERIOD`.
    """

    database: str
    table: str
    columns: tuple[ColumnSchema, ...]
    primary_key: tuple[int, ...] = ()
    versioned: bool = False  # system-versioned
    hash_keys: int = 0  # unique keys too long for an index: at most so many hidden hash columns end the row images
    collation: str | None = None  # of columns that are added without one; None where it is not known

    @property
    def name(self) -> str:
        """The name as text, in backquotes where it would be read as another one."""
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
"""What WITH SYSTEM VERSIONING adds to a table without a period of its own (`Vers_parse_info::fix_implicit`)."""
