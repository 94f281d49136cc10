"""Generated columns, which newer servers omit from the images of updates and deletes, even with binlog_row_image=FULL.

With FULL, 11.8.9 omits virtual and stored generated columns from the images of UPDATE and DELETE, even if their value
changes. An INSERT has them. Index, engine (InnoDB, MyISAM) and key make no difference. 10.5.29, 10.11.19 and 11.8.6 log
them in all images. With every other binlog_row_image, all versions omit them from updates.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replica.schema.table import TableSchema

FIRST_WITHOUT: Final = (11, 8, 9)
"""First tested version that omits them; versions between 11.8.6 and this one are untested."""


def without_generated(schema: TableSchema) -> TableSchema:
    """Return a table without its generated columns."""
    kept = [number for number, column in enumerate(schema.columns) if not column.computed]
    key = tuple(kept.index(number) for number in schema.primary_key if number in kept)
    whole = len(key) == len(schema.primary_key)
    return replace(schema, columns=tuple(schema.columns[n] for n in kept), primary_key=key if whole else ())


def omits_generated(version: str) -> bool:
    """Return True if a server of this version ("11.8.9-MariaDB") omits generated columns even from FULL images."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3]) >= FIRST_WITHOUT
