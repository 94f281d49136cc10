"""What the threads make of errors: waited for, read again, or said with the table's name. The server is a fake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from replica.errors import (
    AuthenticationError,
    DisconnectedError,
    DiskFullError,
    KeyChangedError,
    PrerequisiteError,
    ReplicaError,
    SchemaError,
    ServerError,
    UnsupportedColumnError,
)
from replica.options.config import ReplicaConfig
from replica.options.values import Endpoint
from replica.protocol.gtid import BinlogPosition, GtidPosition
from replica.relay_log.location import RelayHead, RelayLocation
from replica.snapshot.chunks.reader import ChunkReader, Read
from replica.snapshot.chunks.schedule import ReadingList
from replica.snapshot.chunks.threads import ReadingThreads
from replica.snapshot.errors import SAME_ERROR, SAME_MISFIT
from replica.snapshot.frontier import NOTHING
from replica.snapshot.pace import Pace
from replica.snapshot.spool.spool import Spool
from replica.snapshot.watermark.watch import Seen
from tests.fixtures.mariadb import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

A, B = ("d", "a"), ("d", "b")
U = GtidPosition.parse("0-1-9")
HOSTS = Endpoint("one", 3306), Endpoint("other", 3306)
HEAD = RelayHead(RelayLocation(1, 500), GtidPosition.parse("0-1-5"), BinlogPosition("bin.000001", 500), 1)
CONFIG = ReplicaConfig.parse({"user": "u", "backoff_initial": "1ms", "backoff_max": "2ms", "reconnect_retry": "60s"})


class Watch:
    """The watch over a server that is well."""

    seen: Seen | None = Seen(HEAD, HOSTS[0])
    loaded = ""
    waits_for = ""


class Connection:
    def __init__(self, host: Endpoint) -> None:
        self.host = host
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Life:
    """Threads over a fake server: reading d.a raises the errors in turn, then finds that the table is gone, as reading
    any other does at once.
    """

    def __init__(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, errors: list[Exception], *, table_by_table: bool
    ) -> None:
        self.errors = errors
        self.refusal: ReplicaError | None = None
        self.wanted: list[tuple[str, int]] = []
        self.connections: list[Connection] = []
        self.tables = ReadingList()
        self.tables.add([A, B])
        self.watch = Watch()
        spool = Spool(folder, most_bytes=1 << 30, min_free_bytes=0)
        pace = Pace(connections=1, table_by_table=table_by_table)
        monkeypatch.setattr(ChunkReader, "read", self._read)
        self.threads = ReadingThreads(CONFIG, pace, self.tables, spool, self.watch, self._connect)  # type: ignore[arg-type]

    def _read(self, connection: Any, wanted: Any, seen: Seen) -> Read:
        assert (connection.host, connection.closed) == (seen.host, False)
        self.wanted.append((wanted.name[1], wanted.rows))
        if self.errors and wanted.name == A:
            raise self.errors.pop(0)
        return Read(None, U, 10, connected=True)

    def _connect(self, host: Endpoint) -> Any:
        if self.refusal is not None:
            raise self.refusal
        self.connections.append(Connection(host))
        return self.connections[-1]

    def run(self) -> None:
        self.threads.start()
        wait_until(lambda: self.threads.check() or len(self.tables.deliverable()) == 2, "both tables are read")


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    lives: list[Life] = []

    def begin(*errors: Exception, table_by_table: bool = False) -> Life:
        lives.append(Life(tmp_path, monkeypatch, list(errors), table_by_table=table_by_table))
        return lives[-1]

    yield begin
    for one in lives:
        one.threads.close()
        assert all(connection.closed for connection in one.connections)


@pytest.mark.parametrize(
    "error",
    [
        DisconnectedError("gone"),
        ServerError("locked", code=1205),
        ServerError("too long", code=1969),
        ServerError("killed", code=1317),
        ServerError("changed", code=1412),
        ServerError("no such table", code=1146),
        ServerError("no such column", code=1054),
        SchemaError("the result is another"),
    ],
)
def test_what_passes_is_tried_again_over_another_connection(life: Any, error: Exception) -> None:
    one = life(error, error)
    one.run()
    assert [name for name, _ in one.wanted] == ["a", "b", "a", "a"], "all others are read before it is tried again"
    assert len(one.connections) == 3
    assert one.threads.waits_for in ("delivery", "")


def test_a_statement_that_took_too_long_asks_for_fewer_rows(life: Any) -> None:
    one = life(ServerError("too long", code=1969), ServerError("too long", code=1969))
    one.run()
    first, second, third = (rows for name, rows in one.wanted if name == "a")
    assert first > second > third


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ServerError("SELECT denied", code=1142), AuthenticationError, r"table d\.a cannot be read: SELECT denied"),
        (ServerError("broken", code=1030), ServerError, r"while reading table d\.a: broken"),
        (PrerequisiteError("no key"), PrerequisiteError, r"while reading table d\.a: no key"),
        (UnsupportedColumnError("d.a has a new type"), UnsupportedColumnError, r"^d\.a has a new type"),
        (DiskFullError("full"), DiskFullError, "full"),
    ],
)
def test_what_does_not_pass_is_said_with_the_table(
    life: Any, error: ReplicaError, kind: type[ReplicaError], said: str
) -> None:
    with pytest.raises(kind, match=said):
        life(error).run()


def test_what_should_pass_and_does_not_is_said_in_the_end(life: Any) -> None:
    with pytest.raises(ServerError, match=r"d\.a: changed"):
        life(*(ServerError("changed", code=1412) for _ in range(30))).run()
    with pytest.raises(SchemaError, match=r"d\.a: another"):
        life(*(SchemaError("another") for _ in range(10))).run()


@pytest.mark.parametrize(
    "errors",
    [
        [PrerequisiteError("no key")],
        [UnsupportedColumnError("d.a has a new type")],
        [SchemaError("another")] * SAME_MISFIT,
        [ServerError("no such column", code=1054)] * SAME_ERROR,
        [ServerError("a lock was waited for", code=1205)] * SAME_ERROR,
        [ServerError("marked as crashed", code=1194)],
        [ServerError("SELECT denied", code=1142)],
    ],
)
def test_a_table_that_cannot_be_read_is_left_out_where_tables_are_followed(
    life: Any, errors: list[ReplicaError]
) -> None:
    one = life(*errors, table_by_table=True)
    one.run()
    refused, gone = one.tables.deliverable()
    assert errors[0].message in refused.refused
    assert "d.a" in refused.refused
    assert (gone.name, gone.refused) == (B, "")


@pytest.mark.parametrize("table_by_table", [False, True])
def test_what_is_wrong_with_the_server_is_said_wherever_tables_are_followed(life: Any, *, table_by_table: bool) -> None:
    with pytest.raises(ServerError, match="no memory"):
        life(ServerError("no memory", code=1037), table_by_table=table_by_table).run()


def test_a_server_that_refuses_the_connection_is_no_table_s_fault(life: Any) -> None:
    one = life(table_by_table=True)
    one.refusal = PrerequisiteError("it writes no binlog")
    with pytest.raises(PrerequisiteError, match="it writes no binlog"):
        one.run()


@pytest.mark.parametrize("delivered", [False, True])
def test_a_table_with_another_key_is_read_again_or_waits_for_who_asked(life: Any, *, delivered: bool) -> None:
    one = life(KeyChangedError("another key"), table_by_table=True)
    one.tables.follow({A: b"1" if delivered else NOTHING})
    one.threads.start()
    wait_until(lambda: len(one.tables.deliverable()) == 2 - delivered, "what can be read is read")
    assert one.tables.rekeyed == ((A,) if delivered else ())
    one.threads.check()


def test_a_key_that_changed_behind_delivered_rows_ends_the_reading_for_others(life: Any) -> None:
    one = life(KeyChangedError("another key"))
    one.tables.follow({A: b"1"})
    with pytest.raises(KeyChangedError, match=r"while reading table d\.a: another key"):
        one.run()


def test_nothing_is_read_while_the_server_is_loaded_or_not_known(life: Any) -> None:
    one = life()
    one.watch.seen, one.watch.waits_for = None, "the first answer"
    one.threads.start()
    wait_until(lambda: one.threads.waits_for == "the first answer", "it waits")
    one.watch.seen, one.watch.loaded = Seen(HEAD, HOSTS[0]), "the server"
    wait_until(lambda: one.threads.waits_for == "the server", "it waits")
    assert one.wanted == []
    one.watch.loaded = ""
    wait_until(lambda: len(one.tables.deliverable()) == 2, "it goes on")


def test_another_host_gets_another_connection(life: Any) -> None:
    one = life()
    one.run()
    one.watch.seen = Seen(HEAD, HOSTS[1])
    numbers = iter(range(10_000))

    def gone_over() -> bool:
        one.tables.add([("d", f"c{next(numbers)}")])  # the next one may be taken under the host of before
        return len(one.connections) == 2

    wait_until(gone_over, "the other host is read")
    assert [connection.host for connection in one.connections] == list(HOSTS)
