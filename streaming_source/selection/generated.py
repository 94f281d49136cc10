"""The warning at load that updates do not include the values of generated columns.

`warn_of_generated` logs one line if the server omits generated columns from row images (`replica/schema/generated.py`)
and the query selects some. The names of these columns are in `absent` of each such row. In a typed column their value
is NULL, so a query should omit or compute them.
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
"""Most columns in the message. Every table may have one."""
_log = logging.getLogger(__name__)


def warn_of_generated(options: SourceOptions, catalog: Mapping[tuple[str, str], TableSchema], version: str) -> None:
    """Log which selected columns are generated, if a server of this version omits them from updates."""
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
            "generated columns: %s%s arrive with inserts only: MariaDB %s leaves them out of the images of updates "
            "and deletes. They are NULL there, and listed in absent. Leave them out with the option columns, and "
            "compute them from the others",
            ", ".join(names[:SHOWN]),
            more,
            version,
        )
