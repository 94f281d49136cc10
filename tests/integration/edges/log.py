"""What a statement leaves in a real server's binlog, read by both decoders, which have to agree.

In: a server and SQL. Out: the row changes (as plain Python values, dates as text), or the events, of a binlog file that
holds nothing else. Names come from the row metadata (FULL) unless a test says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from replica.protocol.constants import FIRST_POSITION, EventType
from replica.protocol.events.binlog_file import decode_file, walk
from replica.protocol.rows.table_map import TableMapEvent
from replica.rows.decode.decode import DecodeOptions, RangeDecoder, TableTarget
from replica.rows.tables.layout import compile_layout
from replica.rows.types.types import ValuePolicy
from replica.schema.catalog import columns_query, keys_query, read_catalog
from tests.unit.rows.twin import Tables, check_twin

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from replica.protocol.header import Event
    from replica.schema.table import TableSchema
    from tests.fixtures.mariadb import MariaDb

DATABASE = "edge"
OPTIONS = DecodeOptions(shape="envelope", invalid_dates="text")
OPS = ("insert", "update", "delete")
WHOLE_TEXT = "SET SESSION time_zone = '+00:00', sql_mode = ''"


class Change(NamedTuple):
    """One row change; an image is a dict by column name, None where there is no such image.

    An image has NULL for the columns it does not hold; `absent` names them, before and after.
    """

    op: str
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    gtid: tuple[int, int, int]
    ordinal: int
    absent: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    history: bool | None = None


class Log(NamedTuple):
    """The bytes of a binlog file that holds what the statements of a test wrote."""

    data: bytes
    catalog: Mapping[tuple[str, str], TableSchema]

    def events(self, kind: type[Event] | None = None) -> list[Any]:
        """All events, or those of one kind, in file order."""
        return [event for _, event in decode_file(self.data) if kind is None or isinstance(event, kind)]

    def columns(self, table: str) -> list[Any]:
        """The `ColumnDef`s of the first table map of a table."""
        return list(self.table_map(table).columns)

    def table_map(self, table: str, database: str | None = None) -> TableMapEvent:
        """The first one of a table."""
        maps = (event for _, event in decode_file(self.data) if isinstance(event, TableMapEvent))
        return next(event for event in maps if event.table == table and database in (None, event.database))

    def only(self, table: str, database: str) -> Log:
        """A log of the groups alone that name this table: the plain decoder need not walk over all the others."""
        name = b"".join(bytes([len(part)]) + part + b"\0" for part in (database.encode(), table.encode()))
        kept, group, wanted = bytearray(self.data[:FIRST_POSITION]), bytearray(), True  # what is before any group stays
        for found in walk(self.data):
            if found.header.event_type == EventType.GTID:
                kept += group if wanted else b""
                group, wanted = bytearray(), False
            group += found.event
            wanted = wanted or (found.header.event_type == EventType.TABLE_MAP and name in bytes(found.event))
        return Log(bytes(kept + group if wanted else kept), self.catalog)

    def changes(
        self, table: str, *, with_catalog: bool = False, database: str = DATABASE, twin: bool = True
    ) -> list[Change]:
        """The row changes of one table, read by the kernels, after they and the plain twin agreed on them.

        `twin=False` where the table has several definitions, which the twin reads one by one.
        """
        schema = self.catalog[database, table] if with_catalog else None
        if twin:
            check_twin(self.data, Tables({f"{database}.{table}": schema}), OPTIONS)
        table_map = self.table_map(table, database)
        outputs = compile_layout(table_map, schema, None, ValuePolicy("text")).outputs
        decoder = RangeDecoder(_Only(database, table, schema), OPTIONS, outputs)
        found = []
        for batch in decoder.decode(self.data, checksum=True):
            before, after = ([column.to_pylist() for column in side] for side in (batch.before, batch.after))
            names = [column.name for column in outputs]
            absent = [_lists(side, batch.rows) for side in (batch.absent_before, batch.absent_after)]
            history = batch.history.to_pylist() if batch.history is not None else [None] * batch.rows
            for row in range(batch.rows):
                group = int(batch.group[row])
                groups = batch.groups
                found.append(
                    Change(
                        OPS[batch.op[row]],
                        _image(names, before, row) if batch.before_valid[row] else None,
                        _image(names, after, row) if batch.after_valid[row] else None,
                        (int(groups.domain[group]), int(groups.server_id[group]), int(groups.seq_no[group])),
                        int(batch.ordinal[row]),
                        (absent[0][row], absent[1][row]),
                        history[row],
                    )
                )
        return found

    def inserted(self, table: str, *, with_catalog: bool = False) -> list[tuple[Any, ...]]:
        """The after images of a table that was only inserted into, as tuples in column order."""
        changes = self.changes(table, with_catalog=with_catalog)
        assert {change.op for change in changes} <= {"insert"}
        return [tuple((change.after or {}).values()) for change in changes]


def _lists(absent: pa.ListArray | None, rows: int) -> list[frozenset[str]]:
    return [frozenset(names or ()) for names in (absent.to_pylist() if absent is not None else [None] * rows)]


class _Only:
    def __init__(self, database: str, table: str, schema: TableSchema | None) -> None:
        self._name = (database, table)
        self._schema = schema

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        return TableTarget(self._schema) if (table_map.database, table_map.table) == self._name else None


def _image(names: Sequence[str], columns: list[list[Any]], row: int) -> dict[str, Any]:
    return {name: column[row] for name, column in zip(names, columns, strict=True)}


def log_of(server: MariaDb, *statements: str, before: Sequence[str] = (), metadata: str = "FULL") -> Log:
    """Run `before` unseen and `statements` into a new binlog file, all in one session in an empty database."""
    with server.connect() as connection, connection.cursor() as cursor:
        cursor.execute(WHOLE_TEXT)
        _forget_prepared(server)
        cursor.execute(f"CREATE OR REPLACE DATABASE {DATABASE} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {DATABASE}")
        cursor.execute(f"SET GLOBAL binlog_row_metadata = {metadata}")
        for statement in before:
            cursor.execute(statement)
        cursor.execute("FLUSH BINARY LOGS")
        for statement in statements:
            cursor.execute(statement)
    server.sql("SET GLOBAL binlog_row_metadata = NO_LOG")
    return Log((server.datadir / server.binlogs()[-1]).read_bytes(), catalog(server))


def _forget_prepared(server: MariaDb) -> None:
    """Roll back what a test that failed left prepared: it holds locks that the next test would wait for."""
    for format_id, gtrid_length, _, data in server.sql("XA RECOVER FORMAT = 'RAW'"):
        xid = data.encode() if isinstance(data, str) else bytes(data)
        gtrid, bqual = xid[:gtrid_length].hex(), xid[gtrid_length:].hex()
        server.sql(f"XA ROLLBACK X'{gtrid}', X'{bqual}', {format_id}")


def catalog(server: MariaDb, database: str = DATABASE) -> Mapping[tuple[str, str], TableSchema]:
    columns, column_arguments = columns_query([(database, None)])
    keys, key_arguments = keys_query([(database, None)])
    return read_catalog(server.sql(columns, args=column_arguments), server.sql(keys, args=key_arguments))


def version(server: MariaDb) -> tuple[int, ...]:
    return tuple(map(int, server.value("SELECT VERSION()").split(".")[:2]))
