"""Public functions that read the row changes of one table as Arrow RecordBatches: `decode_files` and `read_relay_log`.

The input is binlog files, or the folder of a relay log, which may still be written. docs/api.md describes the
RecordBatches. No server and no Spark is needed. Errors of the arguments are raised at once. Errors of the log are
raised when the reading reaches them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NoReturn, Self

from replica.arrow.table_rows import TableDecoder
from replica.errors import AmbiguousPositionError, ConfigError, RelayError
from replica.files.keys import KeyRing
from replica.log_reader.beginning import behind, earliest
from replica.log_reader.in_relay_log import RelayLogReader
from replica.protocol.gtid import GtidPosition, Order
from replica.relay_log.log import RelayLog
from replica.row_reader.live_names import DefinedBefore, LiveNames
from replica.row_reader.names import Names
from replica.row_reader.notices import Notices
from replica.row_reader.prepared_before import PreparedBefore
from replica.row_reader.reading import Reading
from replica.row_reader.selection import ChosenTransactions
from replica.rows.decode.decode import DecodeOptions
from replica.schema.patterns import table_named, table_text

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from replica.errors import ReplicaError
    from replica.log_reader.part import Part

_log: Final = logging.getLogger("replica")


class _Strict(Notices):
    """Notices of a reading that raises omissions as errors and logs everything else."""

    def say(self, text: str) -> None:
        _log.info(text)

    def left_out(self, error: ReplicaError, *, where: str = "") -> NoReturn:  # noqa: ARG002  (the error says it)
        raise error


class ChangeReader:
    """Iterator over the RecordBatches of a part of a relay log; made by `read_relay_log`, read once.

    Attributes:
        position: The GTID position up to which the reader reads. Store it after the last batch, and pass it as `after`
            the next time: no transaction is lost or repeated.
    """

    def __init__(self, batches: Iterator[pa.RecordBatch], position: GtidPosition) -> None:
        self._batches = batches
        self.position = position

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)


@dataclass(frozen=True, slots=True)
class _Asked:
    """Arguments that both functions share."""

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
        after: Skip transactions up to this position, each in its own domain.
        until: Skip transactions after this position, and domains that it does not name; empty: skip none.
        schema_file: A file of CREATE TABLE statements, for tables whose columns have no names in the log.
        key_file: The key file of the server's file_key_management plugin, for encrypted files.
        invalid_dates: Handling of zero and impossible dates: NULL, an error, or text columns for all dates.
        invalid_text: Handling of bytes that are invalid in their character set: U+FFFD, or an error.
        on_statement_dml: Handling of a statement that was logged without its rows: an error, or skip it.

    Returns:
        RecordBatches of at most 16 384 row changes, in the order of the log. Each owns its memory: you may keep it, and
        use it in other threads. The files must not be overwritten while they are read.

    Raises:
        ConfigError: A wrong argument, or a missing file.
        ProtocolError: A file is damaged, or is not a binlog. Rows before the damage come first.
        SchemaError: The names of the columns are unknown, or a column cannot be decoded.
        StatementDmlError: A statement that was logged as text changed rows.
        DataLossError: The rows of a committed XA transaction are in a file that is not among `paths`.
    """
    asked = _asked(table, schema_file, invalid_dates, invalid_text, on_statement_dml)
    notices = _Strict()
    names = Names([asked.table], notices, asked.options.policy, asked.schema_file, need_names=True)
    selection = ChosenTransactions(start=_position("after", after), stop=_position("until", until))
    keys = None if key_file is None else KeyRing.from_file(Path(key_file))
    reading = Reading([str(Path(path)) for path in paths], selection, names, notices, keys)
    return asked.batches(reading, reading.parts())


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

    The log may be written at the same time, by an `EmbeddedReplica` of this process or by a daemon. Nothing is locked,
    and the writer does not wait: if retention removes a file before it is read, the reading ends with an error.

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
    asked = _asked(table, schema_file, invalid_dates, invalid_text, on_statement_dml)
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
    begin = earliest(log, head) if start is None else behind(log, head, start)
    end = head.location if until is None else log.locate(stop)
    by_number = ChosenTransactions(start=begin.skip, stop=stop if end is None else GtidPosition())
    if not by_number.everything and log.order().highest:
        raise AmbiguousPositionError(
            f"sequence numbers went back in the relay log {folder}, and {stop if end is None else start} is not a "
            "position of this log: the numbers do not show which transactions come after it.",
            hint="Give a position of this log, as ChangeReader.position returns it.",
        )
    names = LiveNames(
        [asked.table],
        notices,
        asked.options.policy,
        asked.schema_file,
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

    return ChangeReader(asked.batches(reading, parts()), stop)


def _asked(
    table: str,
    schema_file: str | os.PathLike[str] | None,
    invalid_dates: Literal["null", "error", "text"],
    invalid_text: Literal["replace", "error"],
    on_statement_dml: Literal["fail", "skip"],
) -> _Asked:
    try:
        asked = table_text(table_named(table))
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
    return _Asked(asked, None if schema_file is None else Path(schema_file), options, on_statement_dml == "fail")


def _position(option: str, value: GtidPosition | str) -> GtidPosition:
    if isinstance(value, GtidPosition):
        return value
    try:
        return GtidPosition.parse(value)
    except ConfigError as error:
        raise ConfigError(f"{option}: {error.message}", hint=error.hint) from None
