"""Tables read over a connection of their own, as row images, and a binlog that is made of these images.

In: a server and a table's definition. Out: blocks of images, and the decoded rows of images and of real binlogs, to be
compared with each other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replica.protocol.compression import inflate
from replica.protocol.constants import EventType
from replica.protocol.rows.rows_event import RowsEvent
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.tables.layout import compile_layout
from replica.schema.text.naming import quoted
from replica.snapshot.connection.connection import TableConnection
from replica.snapshot.rows.result_rows import ResultRows
from replica.snapshot.rows.table_map import TABLE_ID, select_list
from tests.fixtures.replicas import replica_config
from tests.kit.binlog.primary import Primary
from tests.kit.binlog.rows import INSERT, STMT_END, rows
from tests.unit.rows.twin import Decoded, Tables, kernel_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from replica.protocol.rows.table_map import TableMapEvent
    from replica.schema.table import TableSchema
    from replica.snapshot.rows.row_block import RowBlock, TableKey
    from tests.fixtures.mariadb import MariaDb
    from tests.integration.edges.log import Log

EVENT_BYTES = 1 << 20


def connect(server: MariaDb) -> TableConnection:
    return TableConnection.open(replica_config(server))


def order_by(schema: TableSchema, key: TableKey | None) -> str:
    columns = [schema.columns[number].name for number in key.columns] if key else ["id"]
    return ", ".join(map(quoted, columns))


def read_rows(
    connection: TableConnection, schema: TableSchema, key: TableKey | None = None, where: str = "TRUE"
) -> ResultRows:
    """All rows of a table, or those of a condition, in the order of its key."""
    table = f"{quoted(schema.database)}.{quoted(schema.table)}"
    order = order_by(schema, key)
    result = connection.select(f"SELECT {select_list(schema)} FROM {table} WHERE {where} ORDER BY {order}")
    found = ResultRows(schema, key, result.columns)
    for stretch in result.stretches():
        found.add(stretch)
    return found


def read(connection: TableConnection, schema: TableSchema) -> RowBlock:
    """All rows of a table, in the order of `id`."""
    return read_rows(connection, schema).block()


def binlog(block: RowBlock) -> bytes:
    """A binlog whose one transaction inserts the rows of a block."""
    stream = Primary()
    stream.gtid()
    stream.event(EventType.TABLE_MAP, block.table_map)
    first = 0
    for row in range(block.rows):
        begin = int(block.ends[first - 1]) if first else 0
        if row + 1 == block.rows or int(block.ends[row + 1]) - begin > EVENT_BYTES:
            images = block.images[begin : int(block.ends[row])].tobytes()
            stream.event(INSERT, rows(TABLE_ID, block.width, images, flags=STMT_END * (row + 1 == block.rows)))
            first = row + 1
    stream.xid()
    return stream.binlog()


def decoded(
    data: bytes, table_map: TableMapEvent, schema: TableSchema | None, options: DecodeOptions, name: str
) -> Decoded:
    output = None
    if options.shape != "variant":
        output = compile_layout(table_map, schema, None, options.policy).outputs
    return kernel_rows(data, RangeDecoder(Tables({name: schema}), options, output))


def logged_images(log: Log) -> bytes:
    """The images of all rows events of a log, one behind the other."""
    return b"".join(bytes(inflate(e.images) if e.compressed else e.images) for e in log.events(RowsEvent))


def same_rows(ours: Decoded, stream: Decoded, columns: Sequence[str]) -> None:
    """Fail unless both decoded the same images, of the same types."""
    assert len(ours.ops) == len(stream.ops)
    assert ours.history == stream.history
    for what in ("before", "after", "columns"):
        arrays = [getattr(side, what) for side in (ours, stream)]
        for number, (one, other) in enumerate(zip(*arrays, strict=True)):
            name = columns[number] if number < len(columns) else str(number)
            assert one.type == other.type, (what, name)
            assert one.equals(other), (what, name, one.to_pylist(), other.to_pylist())
