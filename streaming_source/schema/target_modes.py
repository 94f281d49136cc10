"""The modes of a mirror's targets: their names, the additional columns of each, and its predicate for current rows.

The columns of the mode append_log are those of rowShape=flat, so that a reader of that shape can read the target.
"""

from __future__ import annotations

from typing import Final

from streaming_source.schema.row_schema import FLAT, WIDE_SEQUENCE_NUMBER, RowColumn

CURRENT: Final = "current"
SOFT_DELETE: Final = "soft_delete"
HISTORY: Final = "history"
APPEND_LOG: Final = "append_log"

MEANINGS: Final = {
    CURRENT: "the rows that the server has now",
    SOFT_DELETE: "the rows that the server has now, and the last values of deleted rows",
    HISTORY: "every version of every row",
    APPEND_LOG: "one row for each change; the mirror never changes these rows",
}
"""The content of a target of each mode."""
CHANGE_TYPES: Final = "read, insert, update_preimage, update_postimage, delete, truncate, drop or again"
_OF_THE_LOG: Final = {
    "_change_type": RowColumn("_change_type", "STRING", CHANGE_TYPES),
    # All 64 bits, under every option of the query.
    "_commit_version": RowColumn("_commit_version", WIDE_SEQUENCE_NUMBER, "sequence number within the domain"),
}
OWN_COLUMNS: Final = {
    CURRENT: (),
    SOFT_DELETE: (
        RowColumn("_deleted", "BOOLEAN", "whether the row was deleted on the server"),
        RowColumn("_deleted_at", "TIMESTAMP", "commit time of the deletion; NULL for a row that the server has"),
        RowColumn("_deleted_gtid", "STRING", "GTID of the deletion"),
    ),
    HISTORY: (
        RowColumn("_valid_from", "TIMESTAMP", "commit time of the change that made the version"),
        RowColumn("_valid_to", "TIMESTAMP", "commit time of the change that ended the version; NULL while it is valid"),
        RowColumn("_from_gtid", "STRING", "GTID of the change that made the version"),
        RowColumn("_to_gtid", "STRING", "GTID of the change that ended the version"),
        RowColumn("_from_sequence", "STRING", "place of `_from_gtid` within its domain: sorts as text"),
        RowColumn("_to_sequence", "STRING", "place of `_to_gtid` within its domain: sorts as text"),
        RowColumn("_current", "BOOLEAN", "whether the server has the version now"),
    ),
    APPEND_LOG: tuple(_OF_THE_LOG.get(column.name, column) for column in FLAT),
}
"""Columns that targets of a mode have after those of their table."""
_NOW: Final = {CURRENT: "true", SOFT_DELETE: "NOT _deleted", HISTORY: "_current", APPEND_LOG: None}


def live_rows(mode: str) -> str | None:
    """Return the predicate of the rows in a target that the server has now; None if it holds changes, not rows."""
    return _NOW[mode]
