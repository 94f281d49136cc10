"""Strict judge: it applies rows one by one, reports every inconsistent row, and finally compares all rows with the
server.

In: four things for each committed batch. They are its rows (or the changes that a MERGE made), its GTID position V, the
delivered part of each table, and the changes in the server's binlog. Out: nothing, or a `WrongRowError` that names the
first wrong row. These rows are wrong: an insert or snapshot row whose key exists, an update or delete whose key does
not exist, a before image that differs from the current row, and a repeated row identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tools.proofs.snapshot.frontier import Delivered
    from tools.proofs.snapshot.tables import Canonical, State, Table
    from tools.proofs.snapshot.truth import Truth

READ, INSERT, UPDATE, DELETE = "read", "insert", "update", "delete"
ORDINALS = 1 << 40


class WrongRowError(AssertionError):
    """A row is lost, doubled or wrong."""


class Row(NamedTuple):
    """A row of the sink."""

    op: str
    table: str
    domain_id: int
    server_id: int
    sequence_number: int
    ordinal: int
    before: State | None
    after: State | None

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self.domain_id, self.server_id, self.sequence_number, self.ordinal


class Judge:
    """What one sink holds beside what the server held at the same position."""

    def __init__(
        self, name: str, tables: Iterable[Table], truth: Truth, begin: Mapping[str, Mapping[str, str]]
    ) -> None:
        self.name = name
        self.rows: dict[str, int] = dict.fromkeys((READ, INSERT, UPDATE, DELETE), 0)
        self.batches = 0
        self.held: dict[str, dict[Canonical, Canonical]] = {}
        self._tables = {table.name: table for table in tables}
        self._truth = truth
        self._at = 0
        self._server: dict[str, dict[Canonical, Canonical]] = {}
        for name_of_table in self._tables:
            self.held[name_of_table] = {}
            self._server[name_of_table] = dict(begin.get(name_of_table, {}))
        self._seen: dict[tuple[int, int], set[int]] = {}

    @property
    def count(self) -> int:
        """Rows that are held."""
        return sum(map(len, self.held.values()))

    # -- what comes ------------------------------------------------------------------------------------------------

    def append(self, batch: int, rows: Sequence[Row], position: str, delivered: Callable[[Table], Delivered]) -> None:
        """Apply the rows of a plain append sink, strictly; then compare.

        The changes of a batch go first, by their places in their domains: a table has one; the rows that were read hold
        at the end of the batch.
        """
        touched: set[tuple[str, Canonical]] = set()
        for row in sorted(rows, key=lambda row: (row.op == READ, row.domain_id, row.sequence_number, row.ordinal)):
            self._apply(batch, row, touched)
        self._compare(batch, position, delivered, touched)

    def merged(
        self,
        batch: int,
        gone: Iterable[tuple[str, State]],
        come: Iterable[tuple[str, State]],
        position: str,
        delivered: Callable[[Table], Delivered],
    ) -> None:
        """Take over what a MERGE took out of its table and put into it; then compare."""
        touched: set[tuple[str, Canonical]] = set()
        for table, state in gone:
            if self.held[table].pop(state.key, None) != state.row:
                raise self._fault(
                    batch, table, state.key, f"the sink's log removes {state.row!r}, which it never added"
                )
            touched.add((table, state.key))
        for table, state in come:
            if state.key in self.held[table]:
                raise self._fault(batch, table, state.key, "the sink has it twice")
            self.held[table][state.key] = state.row
            touched.add((table, state.key))
        self._compare(batch, position, delivered, touched)

    def _apply(self, batch: int, row: Row, touched: set[tuple[str, Canonical]]) -> None:
        self.rows[row.op] = self.rows.get(row.op, 0) + 1
        seen = self._seen.setdefault((row.domain_id, row.server_id), set())
        identity = row.sequence_number * ORDINALS + row.ordinal
        key = (row.after or row.before or ("?",))[0]
        if identity in seen:
            raise self._fault(batch, row.table, key, f"the row identity {row.identity} came before")
        seen.add(identity)
        held = self.held[row.table]
        wanted = {READ: (False, True), INSERT: (False, True), UPDATE: (True, True), DELETE: (True, False)}[row.op]
        if (row.before is not None, row.after is not None) != wanted:
            raise self._fault(batch, row.table, key, f"images of {row.op} that do not fit it: {row}")
        if row.before is not None:
            there = held.pop(row.before.key, None)
            touched.add((row.table, row.before.key))
            if there is None:
                raise self._fault(batch, row.table, row.before.key, f"{row.op} of a row that is not there ({row})")
            if there != row.before.row:
                raise self._fault(
                    batch, row.table, row.before.key, f"{row.op} of {row.before.row!r}, held is {there!r}"
                )
        if row.after is not None:
            touched.add((row.table, row.after.key))
            if row.after.key in held:
                raise self._fault(batch, row.table, row.after.key, f"{row.op} of a row that is there already ({row})")
            held[row.after.key] = row.after.row

    # -- the comparison --------------------------------------------------------------------------------------------

    def _compare(
        self,
        batch: int,
        position: str,
        delivered: Callable[[Table], Delivered],
        touched: set[tuple[str, Canonical]],
    ) -> None:
        self._advance(self._truth.up_to(position), touched)
        self.batches += 1
        extents = {name: delivered(table) for name, table in self._tables.items()}
        for name, key in touched:
            held, server = self.held[name].get(key), self._server[name].get(key)
            if held == server:
                if held is not None:
                    self.held[name][key] = server or held  # one text is enough for both
                continue
            if held is not None:
                what = "the server has no such row" if server is None else f"the server has {server!r}"
                raise self._fault(batch, name, key, f"at {position} the sink has {held!r}, {what}")
            if extents[name].has(self._tables[name], key):
                raise self._fault(batch, name, key, f"at {position} it is lost: the server has {server!r}")
        for name, extent in extents.items():
            self._count(batch, name, extent, position)

    def _advance(self, goal: int, touched: set[tuple[str, Canonical]]) -> None:
        assert goal >= self._at, f"the position went back: {goal} changes, there were {self._at}"
        for change in self._truth.changes[self._at : goal]:
            server = self._server[change.table]
            if change.before is not None:
                assert server.pop(change.before.key) == change.before.row, f"the oracle is wrong about {change}"
                touched.add((change.table, change.before.key))
            if change.after is not None:
                server[change.after.key] = change.after.row
                touched.add((change.table, change.after.key))
        self._at = goal

    def _count(self, batch: int, name: str, extent: Delivered, position: str) -> None:
        """Compare numbers: what nobody touched may be missing all the same."""
        table, held, server = self._tables[name], self.held[name], self._server[name]
        if extent.whole:
            wanted = len(server)
        elif not extent.known:
            return
        else:
            wanted = 0 if extent.last is None else sum(1 for key in server if extent.has(table, key))
        if len(held) != wanted:
            lost = [key for key in server if key not in held and extent.has(table, key)]
            more = [key for key in held if key not in server or not extent.has(table, key)]
            key = (lost or more or ["?"])[0]
            what = f"the sink has {len(held)} rows at {position}, the server {wanted} of what is delivered"
            raise self._fault(batch, name, key, f"{what}: {len(lost)} are lost, {len(more)} too many")

    def at_rest(self, server: Mapping[str, Mapping[str, str]]) -> None:
        """Compare everything with the tables themselves."""
        for name, rows in server.items():
            for key in rows.keys() | self.held[name].keys():
                if self.held[name].get(key) != rows.get(key):
                    text = f"at the end the sink has {self.held[name].get(key)!r}, SELECT gives {rows.get(key)!r}"
                    raise self._fault(self.batches, name, key, text)

    def _fault(self, batch: int, table: str, key: str, what: str) -> WrongRowError:
        return WrongRowError(f"{self.name}, batch {batch}, table {table}, key {key!r}: {what}")


def shown(rows: Mapping[str, Any]) -> str:
    """Numbers by name, in one line."""
    return ", ".join(f"{count:,} {name}" for name, count in rows.items() if count)
