"""Columns of a table from its last rows in a relay log, for queries that ask no server.

`newest_table` returns the columns that the table's newest table map names (binlog_row_metadata=FULL). It searches the
log from its end and decodes nothing: a stretch without the table costs a search for its name. A table without rows in
the log is an error, and so are rows that do not name their columns.
"""

from __future__ import annotations

import contextlib
import difflib
import mmap
from typing import TYPE_CHECKING, Final, NamedTuple

from replica.errors import DataLossError, SchemaError
from replica.protocol.rows.table_map import parse_table_map
from replica.relay_log.location import RelayLocation, relay_numbers
from replica.rows.scan.scan import scan
from replica.rows.tables.match import unnamed_schema
from replica.schema.patterns import table_text
from streaming_source.files.survey import in_order_of_last_use
from streaming_source.schema.table_columns import logged_table_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from replica.protocol.rows.table_map import TableMapEvent
    from replica.relay_log.log import RelayLog, RelayRange
    from replica.rows.types.types import ValuePolicy
    from replica.schema.table import TableSchema
    from streaming_source.schema.row_schema import TableColumn

STRETCH_BYTES: Final = 8 << 20
"""Size of a stretch in bytes: large enough that the search for a name is its only cost."""

_NAME_AT: Final = 8  # in the body of a TABLE_MAP event, after table id and flags
_SERVER_HINT = "Set host and user: then the server's catalog gives the table's columns."


class DescribedTable(NamedTuple):
    """Table as its rows describe it.

    It has the columns of a query, and the other metadata in the rows.
    """

    columns: tuple[TableColumn, ...]
    schema: TableSchema


def newest_table(
    log: RelayLog, table: tuple[str, str], policy: ValuePolicy, chosen: Sequence[str] | None = None
) -> DescribedTable:
    """Read the columns of `table`.

    Args:
        log: the relay log to search.
        table: (database, table) as the binlog spells it.
        policy: how values are converted.
        chosen: the option `columns`.

    Raises:
        SchemaError: the log has no rows of the table, the rows do not name their columns, or a column cannot be
            decoded.
    """
    table_map = _newest(log, table)
    if any(column.name is None for column in table_map.columns):
        raise SchemaError(
            f"the rows of {table_text(table)} in the relay log do not name their columns.",
            hint=f"{_SERVER_HINT} Or set binlog_row_metadata=FULL on the primary: then later rows name their columns.",
        )
    return DescribedTable(logged_table_columns(table_map, None, policy, chosen), unnamed_schema(table_map))


def _newest(log: RelayLog, table: tuple[str, str]) -> TableMapEvent:
    sought = b"".join(bytes([len(name)]) + name + b"\0" for name in (part.encode() for part in table))
    others: set[str] = set()
    for part in _backwards(log):
        with open(part.path, "rb") as file:  # noqa: PTH123  (as tasks open it)
            mapped = mmap.mmap(file.fileno(), part.end, access=mmap.ACCESS_READ)
        if others and mapped.rfind(sought, part.start) < 0:
            continue
        found = scan(memoryview(mapped)[part.start :], checksum=part.checksum)
        for slot in reversed(in_order_of_last_use(found.events["slot"], len(found.maps))):
            body = found.table_map_body(slot)
            if bytes(body[_NAME_AT : _NAME_AT + len(sought)]) == sought:
                return parse_table_map(body)
            others.add(_name(body))
    near = difflib.get_close_matches(table_text(table), others, n=3, cutoff=0.6)
    raise SchemaError(
        f"the relay log {log.directory} has no rows of {table_text(table)}, so the table's columns are unknown.",
        hint=f"Did you mean {' or '.join(near)}?" if near else _SERVER_HINT,
    )


def _backwards(log: RelayLog) -> Iterator[RelayRange]:
    """Yield the log in stretches of whole groups, the last stretch first.

    The stretches end early if retention removes files meanwhile.
    """
    head = log.head()
    if head is None:
        return
    with contextlib.suppress(DataLossError, FileNotFoundError):
        for number in reversed(relay_numbers(log.directory)):
            end = min(head.location, RelayLocation(number + 1, 0))
            yield from reversed(log.ranges(RelayLocation(number, 0), end, STRETCH_BYTES))


def _name(body: memoryview) -> str:
    """Read database.table from the body of a TABLE_MAP event, whatever its columns are."""
    names, at = [], _NAME_AT
    for _ in range(2):
        end = at + 1 + body[at]
        names.append(str(body[at + 1 : end], "utf-8", "replace"))
        at = end + 1
    return table_text((names[0], names[1]))
