"""The warning that values of generated columns do not come with updates: said when a query is loaded.

In: the options, the catalog's word on the selected tables, and the server's version. Out: one line in the log, where
the server leaves generated columns out of row images (`replica/schema/generated.py`) and the query asks for some. Their
names are in `absent` of each such row, and NULL is all that a typed column can say: who knows it leaves them out, or
computes them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from replica.schema.generated import omits_generated
from streaming_source.selection.columns import column_matcher

if TYPE_CHECKING:
    from collections.abc import Mapping

    from replica.schema.table import TableSchema
    from streaming_source.options.source_options import SourceOptions

SHOWN: Final = 5
"""Columns in the message; there may be one in every table."""
_log = logging.getLogger(__name__)


def warn_of_generated(options: SourceOptions, catalog: Mapping[tuple[str, str], TableSchema], version: str) -> None:
    """Log which of the wanted columns are generated, if updates of a server of this version do not tell them."""
    if not omits_generated(version):
        return
    asked_for = column_matcher(options.columns or ())
    names = [
        f"{table.name}.{column.name}"
        for table in catalog.values()
        for column in table.columns
        if column.computed and (asked_for is None or asked_for.fits(column.name))
    ]
    if names:
        more = "" if len(names) <= SHOWN else f" and {len(names) - SHOWN} more"
        _log.warning(
            "generated columns: %s%s come with inserts only: MariaDB %s leaves them out of the images of updates and "
            "deletes. They are NULL there, and named in absent. Leave them out with the option columns, and compute "
            "them from the others",
            ", ".join(names[:SHOWN]),
            more,
            version,
        )
