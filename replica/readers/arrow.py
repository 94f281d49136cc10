"""Public functions that read the row changes of one table as Arrow RecordBatches: `decode_files` and `read_relay_log`.

The input is binlog files, or the folder of a relay log that a replica may still be writing. docs/api.md describes the
RecordBatches. Neither a server nor Spark is needed. A wrong argument raises an error at the call; an error of the log
is raised when the iterator reaches it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, NoReturn, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from replica.errors import AmbiguousPositionError, ConfigError, ProtocolError, RelayError, StatementDmlError
from replica.protocol.gtid import GtidPosition, Order
from replica.readers.files.encryption import KeyRing
from replica.readers.log.following import earliest, start_after
from replica.readers.log.in_relay_log import RelayLogReader
from replica.readers.rows.names import DefinedBefore, LiveNames, Names
from replica.readers.rows.progress import Notices
from replica.readers.rows.reading import ChosenTransactions, PreparedBefore, Reading, mysql_gtids, of_file
from replica.readers.rows.without_rows import StatementChanges
from replica.relay_log.log import RelayLog
from replica.rows.decode.decode import DecodeOptions, RangeDecoder
from replica.rows.decode.slots import TableCache
from replica.rows.scan.scan import scan
from replica.rows.scan.xa import XaGroup, deliver, unprepared_error
from replica.rows.tables.layout import compile_layout
from replica.rows.types.arrow_arrays import array_of, array_of_values, repeated, validity
from replica.schema.patterns import table_named, table_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Sequence

    import numpy.typing as npt

    from replica.errors import ReplicaError
    from replica.protocol.rows.table_map import TableMapEvent
    from replica.readers.log.reader import Part
    from replica.readers.rows.without_rows import WithoutRows
    from replica.rows.decode.batch import ChangeBatch
    from replica.rows.scan.xa import CarriedGroup
    from replica.rows.tables.layout import TableTarget
    from replica.rows.types.types import OutputColumn, ValuePolicy

    Definition = tuple[OutputColumn, ...]

OPERATIONS: Final = array_of_values(["insert", "update", "delete"], pa.string())
"""Names of the row operations, indexed by the decoder's operation code."""
NAMES: Final = pa.list_(pa.string())
_MICROSECONDS: Final = 1_000_000


class ChangeColumn(NamedTuple):
    """One column of the RecordBatches; `kind` is None for images, whose type follows from the table."""

    name: str
    kind: pa.DataType | None
    nullable: bool
    meaning: str


FIELDS: Final = (
    ChangeColumn("op", pa.string(), False, "`insert`, `update` or `delete`"),
    ChangeColumn("gtid", pa.string(), False, "the transaction: `0-1-4711`; in MySQL's files `uuid:number`"),
    ChangeColumn("domain_id", pa.uint32(), False, "its replication domain; 0 in MySQL's files"),
    ChangeColumn("server_id", pa.uint32(), False, "the server that logged it"),
    ChangeColumn("sequence_number", pa.uint64(), False, "its number in the domain; grows along the log"),
    ChangeColumn("commit_time", pa.timestamp("us", tz="UTC"), False, "when it was committed, to the second"),
    ChangeColumn(
        "ordinal", pa.int64(), False, "number of the row change among those of all tables in its transaction, from 0"
    ),
    ChangeColumn("last", pa.bool_(), False, "whether it is the last row change of the transaction in this table"),
    ChangeColumn("before", None, True, "the row before the change, with a field for each column; NULL for `insert`"),
    ChangeColumn("after", None, True, "the row after the change; NULL for `delete`"),
    ChangeColumn("absent_before", NAMES, True, "columns left out of `before` (binlog_row_image=MINIMAL); NULL: none"),
    ChangeColumn("absent_after", NAMES, True, "columns left out of `after`, and NULL there; NULL: none"),
    ChangeColumn(
        "history", pa.bool_(), True, "for system-versioned tables, whether the row is a closed version; else NULL"
    ),
)


def change_schema(columns: Sequence[OutputColumn]) -> pa.Schema:
    """Return the schema of the RecordBatches of a table with these columns."""
    image = pa.struct([pa.field(column.name, column.arrow) for column in columns])
    return pa.schema([pa.field(field.name, field.kind or image, field.nullable) for field in FIELDS])


def change_record_batch(changes: ChangeBatch, schema: pa.Schema, gtids: pa.Array | None) -> pa.RecordBatch:
    """Make the RecordBatch of `schema` from a decoded batch.

    Args:
        changes: A batch of the shape `envelope`. The RecordBatch refers to its buffers, so it owns its memory only if
            the decoder does not reuse them.
        schema: The result of `change_schema`.
        gtids: For a log of MySQL, the GTID of each group as text; None for a log of MariaDB, whose groups have the
            numbers.
    """
    groups, used = changes.groups, np.unique(changes.group)
    rows = np.searchsorted(used, changes.group)
    domain, server = groups.domain[used].astype(np.uint32), groups.server_id[used].astype(np.uint32)
    number = groups.sequence_numbers[used]
    if gtids is None:
        parts = [array_of(part).cast(pa.string()) for part in (domain, server, number)]
        texts = pc.binary_join_element_wise(*parts, repeated("-", len(used)))
    else:
        texts = gtids.take(array_of(used)).cast(pa.string())
    moment = array_of(groups.commit_ts[changes.group] * _MICROSECONDS).view(schema.field("commit_time").type)
    nothing = pa.nulls(changes.rows, NAMES)
    columns = {
        "op": OPERATIONS.take(array_of(changes.op)),
        "gtid": texts.take(array_of(rows)),
        "domain_id": array_of(domain[rows]),
        "server_id": array_of(server[rows]),
        "sequence_number": array_of(number[rows]),
        "commit_time": moment,
        "ordinal": array_of(changes.ordinal),
        "last": array_of(changes.last),
        "before": _image(changes.before, schema.field("before").type, changes.before_valid),
        "after": _image(changes.after, schema.field("after").type, changes.after_valid),
        "absent_before": nothing if changes.absent_before is None else changes.absent_before.cast(NAMES),
        "absent_after": nothing if changes.absent_after is None else changes.absent_after.cast(NAMES),
        "history": pa.nulls(changes.rows, pa.bool_()) if changes.history is None else changes.history,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


def _image(arrays: Sequence[pa.Array], kind: pa.DataType, valid: npt.NDArray[np.bool_]) -> pa.Array:
    return pa.StructArray.from_buffers(kind, len(valid), [validity(valid)], children=list(arrays))


# An ALTER TABLE that is not in the binlog can leave rows of several definitions in one part of the log. `TableDecoder`
# then decodes the part once per definition and sorts the rows, so memory stays bounded by one part. Rows before an
# error are returned before the error is raised.


SHOWN_TEXT: Final = 200
"""Characters of a statement in an error message, enough to find the statement."""


@dataclass(slots=True)
class _OneDefinition:
    """`TableResolver` that selects only the rows with one definition of the table."""

    names: Names
    policy: ValuePolicy
    columns: Definition

    def resolve(self, table_map: TableMapEvent) -> TableTarget | None:
        """Return the definition that decodes these rows; None for other definitions and other tables."""
        target = self.names.resolve(table_map)
        if target is None:
            return None
        found = compile_layout(table_map, target.schema, None, self.policy).outputs
        return target if found == self.columns else None


class _Refusal(NamedTuple):
    """First group of a part that the reading refuses, with its index in the part and the error to raise there."""

    group: int
    error: ReplicaError


@dataclass(slots=True)
class TableDecoder:
    """Decoder of the row changes of one table, part by part along a log.

    With `statements_stop`, row changes that were logged as statements are an error.
    """

    reading: Reading
    options: DecodeOptions
    statements_stop: bool
    _tables: TableCache | None = None
    _decoders: dict[Definition, RangeDecoder] = field(default_factory=dict)
    _statements: StatementChanges | None = None

    def of(self, part: Part) -> Iterator[pa.RecordBatch]:
        """Yield the row changes of the next part.

        Raises:
            StatementDmlError: A statement that was logged as text may have changed rows of the table.
            ReplicaError: An error of the decoder, with the file's name and the offset in the file.
        """
        if not part.piece.whole:  # the log ends before the commit of the transaction
            return
        names = self.reading.names
        if part.defines and names.learn(part):
            self._tables = None  # after DDL, an equal table map may have other column names
            self._decoders.clear()
        carried, groups = self.reading.carry(part), self.reading.groups(part)
        shown, refused = self.reading.shown(part), self._refused(part, carried)
        if refused is not None:
            before = np.arange(len(groups)) < refused.group
            shown = before if shown is None else shown & before
        if shown is None or shown.any():
            try:
                yield from self._decoded(part, carried, shown)
            except ProtocolError as error:
                raise of_file(error, part) from None
        if refused is not None:
            raise refused.error

    def _refused(self, part: Part, carried: Sequence[CarriedGroup]) -> _Refusal | None:
        """Find the first selected group that this reading refuses, although the decoder accepts it."""
        shown, found = self.reading.shown(part), list[_Refusal]()
        unprepared: list[XaGroup] = []
        deliver(self.reading.scan(part), carried, unprepared)
        found += [_Refusal(xa.number, unprepared_error(xa)) for xa in unprepared if shown is None or shown[xa.number]]
        if self.statements_stop:
            self._statements = self._statements or StatementChanges(self.reading.names.wants)
            starts = self.reading.groups(part).start
            for change in self._statements.of(part):
                number = int(np.searchsorted(starts, change.start))
                if shown is None or shown[number]:
                    found.append(_Refusal(number, _without_rows(change)))
        return min(found, key=lambda refusal: refusal.group, default=None)

    def _decoded(
        self, part: Part, carried: Sequence[CarriedGroup], shown: npt.NDArray[np.bool_] | None
    ) -> Iterator[pa.RecordBatch]:
        definitions = self._definitions(part, carried)
        gtids = mysql_gtids(part, self.reading.groups(part))
        if len(definitions) == 1:
            yield from (batch for _, batch in self._rows(definitions[0], part, carried, shown, gtids))
            return
        pieces: list[tuple[int, pa.RecordBatch]] = []
        for columns in definitions:
            for group, batch in self._rows(columns, part, carried, shown, gtids):
                borders = [0, *(np.flatnonzero(np.diff(group)) + 1).tolist(), len(group)]
                pieces += [(int(group[first]), batch.slice(first, end - first)) for first, end in pairwise(borders)]
        yield from (batch for _, batch in sorted(pieces, key=lambda piece: piece[0]))

    def _rows(
        self,
        columns: Definition,
        part: Part,
        carried: Sequence[CarriedGroup],
        shown: npt.NDArray[np.bool_] | None,
        gtids: pa.Array | None,
    ) -> Iterator[tuple[npt.NDArray[np.int32], pa.RecordBatch]]:
        """Yield RecordBatches of one definition, each with the group number of every row (int32)."""
        schema = change_schema(columns)
        decoder = self._decoders.get(columns)
        if decoder is None:
            resolver = _OneDefinition(self.reading.names, self.options.policy, columns)
            decoder = self._decoders[columns] = RangeDecoder(resolver, self.options, columns)
        decoded = decoder.decode(
            part.piece.data,
            checksum=part.piece.checksum,
            carried=carried,
            unprepared=[],  # `_refused` has raised the errors that matter
            only=None if shown is None else lambda _: shown,
        )
        for changes in decoded:
            yield changes.group, change_record_batch(changes, schema, gtids)

    def _definitions(self, part: Part, carried: Sequence[CarriedGroup]) -> list[Definition]:
        """List the definitions of the table's rows in a part, in order of appearance."""
        names, policy = self.reading.names, self.options.policy
        if self._tables is None:
            self._tables = TableCache(names, None, policy)
        found: dict[Definition, None] = {}
        for scanned in (*(scan(group.data, checksum=group.checksum) for group in carried), self.reading.scan(part)):
            slots = self._tables.slots(scanned)
            found |= dict.fromkeys(slots.table(slot).layout.outputs for slot in np.flatnonzero(slots.wanted).tolist())
        return list(found)


def _without_rows(change: WithoutRows) -> StatementDmlError:
    return StatementDmlError(
        f"{change.gtid} changed rows of {', '.join(change.names)} by a statement that was logged without them: "
        f"{change.text[:SHOWN_TEXT]}",
        hint='on_statement_dml="skip" continues without these changes; binlog_format=ROW logs rows.',
    )


_log: Final = logging.getLogger("replica")


class _Strict(Notices):
    """Notices that raise omitted rows as errors and log everything else."""

    def say(self, text: str) -> None:
        _log.info(text)

    def left_out(self, error: ReplicaError, *, where: str = "") -> NoReturn:  # noqa: ARG002  (the error says it)
        raise error


class ChangeReader:
    """Single-use iterator over the RecordBatches that `read_relay_log` returns.

    Attributes:
        position: The GTID position at which the reader ends. Store it after the last batch, and pass it as `after` the
            next time. Then no transaction is lost or repeated.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], position: GtidPosition) -> None:
        self._batches = batches
        self.position = position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


@dataclass(frozen=True, slots=True)
class _Arguments:
    """Parsed arguments that `decode_files` and `read_relay_log` share."""

    table: str
    schema_file: Path | None
    options: DecodeOptions
    statements_stop: bool

    def batches(self, reading: Reading, parts: Iterable[Part]) -> Iterator[pa.RecordBatch]:
        rows = TableDecoder(reading, self.options, self.statements_stop)
        for part in parts:
            yield from rows.of(part)


def decode_files(
    paths: Iterable[str | os.PathLike[str]],
    table: str,
    *,
    after: GtidPosition | str = "",
    until: GtidPosition | str = "",
    schema_file: str | os.PathLike[str] | None = None,
    key_file: str | os.PathLike[str] | None = None,
    invalid_dates: Literal["null", "error", "text"] = "null",
    invalid_text: Literal["replace", "error"] = "replace",
    on_statement_dml: Literal["fail", "skip"] = "fail",
) -> Iterator[pa.RecordBatch]:
    """Decode the row changes of one table in binlog files into Arrow RecordBatches.

    The files are opened one after the other, when the iterator reaches them. They may be plain, gzip, zstd, xz or
    encrypted, of MariaDB or MySQL. Rows of an XA transaction come at its commit. A table without rows gives no batch.

    Args:
        paths: The files in the order of the log.
        table: `database.table`, as the binlog spells it.
        after: Skip transactions up to this position, domain by domain; empty: skip none.
        until: Skip transactions after this position, and domains that it does not name; empty: skip none.
        schema_file: A file of CREATE TABLE statements, for tables whose columns have no names in the log.
        key_file: The key file of the server's file_key_management plugin, for encrypted files.
        invalid_dates: Handling of zero and impossible dates: NULL, an error, or text columns for all dates.
        invalid_text: Handling of bytes that are invalid in their character set: U+FFFD, or an error.
        on_statement_dml: Handling of a statement that was logged without its rows: an error, or skip it.

    Returns:
        RecordBatches in the order of the log. The files must not be overwritten while they are read.

    Raises:
        ConfigError: A wrong argument, or a missing file.
        ProtocolError: A file is damaged, or is not a binlog. Rows before the damage come first.
        SchemaError: The names of the columns are unknown, or a column cannot be decoded.
        StatementDmlError: A statement that was logged as text changed rows.
        DataLossError: The rows of a committed XA transaction are in a file that is not among `paths`.
    """
    arguments = _checked_arguments(table, schema_file, invalid_dates, invalid_text, on_statement_dml)
    notices = _Strict()
    names = Names([arguments.table], notices, arguments.options.policy, arguments.schema_file, need_names=True)
    selection = ChosenTransactions(start=_position("after", after), stop=_position("until", until))
    keys = None if key_file is None else KeyRing.from_file(Path(key_file))
    reading = Reading([str(Path(path)) for path in paths], selection, names, notices, keys)
    return arguments.batches(reading, reading.parts())


def read_relay_log(
    directory: str | os.PathLike[str],
    table: str,
    *,
    after: GtidPosition | str | None = None,
    until: GtidPosition | str | None = None,
    schema_file: str | os.PathLike[str] | None = None,
    invalid_dates: Literal["null", "error", "text"] = "null",
    invalid_text: Literal["replace", "error"] = "replace",
    on_statement_dml: Literal["fail", "skip"] = "fail",
) -> ChangeReader:
    """Read the row changes of one table in a relay log, up to its current end.

    An `EmbeddedReplica` or a daemon may write the log at the same time, because the reader locks nothing. If retention
    removes a file before it is read, the reading ends with an error.

    Args:
        directory: The `relay_dir` of a replica.
        table: `database.table`, as the binlog spells it.
        after: The position after which the reading begins; None: the oldest transaction of the log.
        until: The position at which the reading ends; None: the last whole transaction.
        schema_file: A file of CREATE TABLE statements, for tables whose columns have no names in the log.
        invalid_dates: As for `decode_files`.
        invalid_text: As for `decode_files`.
        on_statement_dml: As for `decode_files`.

    Returns:
        RecordBatches as `decode_files` returns them, with the end of the reading in `position`.

    Raises:
        ConfigError: A wrong argument, or a domain of `after` that the log has never had.
        RelayError: There is no relay log, or it ends before `until`.
        DataLossError: The transactions after `after` were purged.
        AmbiguousPositionError: `after` or `until` has several possible places, because sequence numbers decreased.
        SchemaError: As for `decode_files`.
        StatementDmlError: As for `decode_files`.
    """
    arguments = _checked_arguments(table, schema_file, invalid_dates, invalid_text, on_statement_dml)
    folder = Path(directory)
    log, notices = RelayLog(folder), _Strict()
    head = log.head()
    start = None if after is None else _position("after", after)
    if head is None:
        raise RelayError(
            f"{folder} holds no relay log that a replica has begun.", hint="Name the relay_dir of a running replica."
        )
    stop = head.position if until is None else _position("until", until)
    if head.position.compare(stop) not in (Order.EQUAL, Order.AFTER):
        raise RelayError(
            f"the relay log {folder} ends at {head.position}, before {stop}.",
            hint="Wait until its replica has received that position: EmbeddedReplica.wait_for.",
        )
    begin = earliest(log, head) if start is None else start_after(log, head, start)
    end = head.location if until is None else log.locate(stop)
    by_number = ChosenTransactions(start=begin.skip, stop=stop if end is None else GtidPosition())
    if not by_number.everything and log.order().highest:
        raise AmbiguousPositionError(
            f"sequence numbers went back in the relay log {folder}, and {stop if end is None else start} is not a "
            "position of this log: the numbers do not show which transactions come after it.",
            hint="Give a position of this log, as ChangeReader.position returns it.",
        )
    names = LiveNames(
        [arguments.table],
        notices,
        arguments.options.policy,
        arguments.schema_file,
        DefinedBefore(log, begin.place.location).table,
        need_names=True,
    )
    reading = Reading([str(folder)], by_number, names, notices)
    prepared = PreparedBefore(log, begin.place.location)

    def parts() -> Iterator[Part]:
        for part in RelayLogReader(log).parts(begin.place.location, end or head.location):
            prepared.supply(reading, part)
            yield part
            if reading.selection.finished:
                return

    return ChangeReader(arguments.batches(reading, parts()), stop)


def _checked_arguments(
    table: str,
    schema_file: str | os.PathLike[str] | None,
    invalid_dates: Literal["null", "error", "text"],
    invalid_text: Literal["replace", "error"],
    on_statement_dml: Literal["fail", "skip"],
) -> _Arguments:
    try:
        name = table_text(table_named(table))
    except ValueError as error:
        raise ConfigError(f"table={table!r} {error}.", hint="Name one table, not a pattern.") from None
    for option, value, known in (
        ("invalid_dates", invalid_dates, ("null", "error", "text")),
        ("invalid_text", invalid_text, ("replace", "error")),
        ("on_statement_dml", on_statement_dml, ("fail", "skip")),
    ):
        if value not in known:
            raise ConfigError(f"{option}={value!r} is not one of {', '.join(known)}.")
    options = DecodeOptions(invalid_dates=invalid_dates, invalid_text=invalid_text)
    return _Arguments(name, None if schema_file is None else Path(schema_file), options, on_statement_dml == "fail")


def _position(option: str, value: GtidPosition | str) -> GtidPosition:
    if isinstance(value, GtidPosition):
        return value
    try:
        return GtidPosition.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error.message}", hint=error.hint) from None
