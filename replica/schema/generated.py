"""Generated columns, which newer servers leave out of the images of updates and deletes with binlog_row_image=FULL too.

Measured with FULL: virtual and stored columns, indexed or not, InnoDB and MyISAM, with and without a
key: 11.8.9 leaves them out of both images of an UPDATE and of that of a DELETE, also where their value changes; an
INSERT has them. 10.5.29, 10.11.19 and 11.8.6 put them into all images. With every other binlog_row_image all versions
leave them out of updates.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from replica.schema.table import TableSchema

FIRST_WITHOUT: Final = (11, 8, 9)
"""The first version that was seen to leave them out; those between 11.8.6 and this were not tried."""


def without_generated(schema: TableSchema) -> TableSchema:
    """Return a table without its generated columns."""
    kept = [number for number, column in enumerate(schema.columns) if not column.computed]
    key = tuple(kept.index(number) for number in schema.primary_key if number in kept)
    whole = len(key) == len(schema.primary_key)
    return replace(schema, columns=tuple(schema.columns[n] for n in kept), primary_key=key if whole else ())


def omits_generated(version: str) -> bool:
    """Tell whether a server of this version ("11.8.9-MariaDB") leaves generated columns out with FULL images too."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3]) >= FIRST_WITHOUT
