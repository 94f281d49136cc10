"""What the replica receives from a real server from a position on: its relay log, and the row changes in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from replica.live.embedded import EmbeddedReplica
from replica.protocol.gtid import GtidPosition
from replica.protocol.rows.table_map import TableMapEvent
from replica.relay_log.location import RelayLocation, relay_numbers, relay_path
from replica.relay_log.log import RelayLog
from tests.fixtures.replicas import replica_config
from tests.integration.edges.log import Change, Log, catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from replica.schema.table import TableSchema
    from tests.fixtures.mariadb import MariaDb

WAIT_S = 60.0


class Received(NamedTuple):
    """A relay log that holds everything from its start up to `end`."""

    log: RelayLog
    end: RelayLocation
    position: GtidPosition
    catalog: Mapping[tuple[str, str], TableSchema]

    def files(self) -> Iterator[Log]:
        for number in relay_numbers(self.log.directory):
            path = relay_path(self.log.directory, number)
            size = self.end.offset if number == self.end.file else None
            yield Log(path.read_bytes()[:size], self.catalog)

    def changes(self, table: str, *, with_catalog: bool = False) -> list[Change]:
        found = []
        for file in self.files():
            if any(event.table == table for event in file.events(TableMapEvent)):
                found += file.changes(table, twin=False, with_catalog=with_catalog)
        return found


def receive(server: MariaDb, start: str, directory: Path, **options: object) -> Received:
    """Everything after `start` that the server has now. `options` are the replica's."""
    replica = EmbeddedReplica(replica_config(server, **options), directory)
    try:
        replica.start(GtidPosition.parse(start))
        target = GtidPosition.parse(server.gtid_binlog_pos())
        assert replica.wait_for(target, WAIT_S), f"{replica.head().position} is not {target}"
        head = replica.head()
    finally:
        replica.close()
    return Received(RelayLog(directory), head.location, head.position, catalog(server))
