"""Source of changes for `tail`: a relay log of another process, or a temporary one.

`relay_directory` and `primary` yield a `Source`. A `Source` has the relay log to follow and, if there is a connection,
a function that queries a table's definition.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import structlog

from replica.commands.dump.rows.rows_text import RangeOrigin
from replica.errors import RelayError
from replica.live.embedded import EmbeddedReplica
from replica.protocol.plain_text import plain_event
from replica.readers.primary import temporary_log
from replica.readers.rows.reading import ChosenTransactions
from replica.relay_log.log import RelayLog
from replica.rows.scan import records as r

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

    import numpy.typing as npt
    from structlog.typing import FilteringBoundLogger

    from replica.commands.dump.rows.rows_text import RowTexts, Texts
    from replica.options.config import ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.readers.log.reader import Part
    from replica.readers.rows.names import Lookup
    from replica.readers.rows.reading import Reading
    from replica.rows.decode.batch import ChangeBatch, Groups
    from replica.schema.table import TableSchema


class Source(NamedTuple):
    """Log to follow. `replica`: the temporary replica; None if another process writes the log."""

    log: RelayLog
    lookup: Lookup | None
    replica: EmbeddedReplica | None = None


def check_relay_directory(directory: Path) -> None:
    """Raise RelayError if the folder is missing, unreadable, or no relay directory."""
    try:
        entries = [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise RelayError(
            f"{directory} is not a relay directory: {error.strerror}.", hint="Name the relay_dir of a replica."
        ) from None
    if entries and not any(name.startswith("relay.") for name in entries):
        raise RelayError(f"{directory} holds no relay log.", hint="Name the relay_dir of a replica.")


def warnings_logger() -> FilteringBoundLogger:
    """Return a logger for connection errors that are retried, which explain why no changes arrive."""
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr),
        processors=[
            _only_trouble,
            structlog.processors.add_log_level,
            plain_event,
            structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
    )


def _only_trouble(_logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    # An error ends the replica, and the next call raises it. Advice about settings belongs to `check`.
    if method == "error" or event["event"] == "server setting":
        raise structlog.DropEvent
    return event


@contextlib.contextmanager
def relay_directory(directory: Path, config: ReplicaConfig | None) -> Iterator[Source]:
    """Yield an existing relay log; column names are queried over a connection of `config`.

    Raises:
        RelayError: The folder is missing or unreadable.
    """
    check_relay_directory(directory)
    if config is None:
        yield Source(RelayLog(directory), None)
        return
    with contextlib.closing(EmbeddedReplica(config, directory)) as asking:
        yield Source(RelayLog(directory), _lookup_of(asking))


@contextlib.contextmanager
def primary(config: ReplicaConfig, start: str | GtidPosition, log: FilteringBoundLogger) -> Iterator[Source]:
    """Yield the log of a temporary replica. `start`: latest, earliest, or a position.

    Raises:
        ReplicaError: Any error of EmbeddedReplica, from the calls of the source.
    """
    with temporary_log(config, start, log) as own:
        yield Source(own.log, _lookup_of(own.replica), own.replica)


def _lookup_of(replica: EmbeddedReplica) -> Lookup:
    def lookup(database: str, table: str) -> TableSchema:
        (schema,) = replica.fetch_schema([(database, table)]).values()
        return schema

    return lookup


# A large transaction comes in several pieces; `TransactionRows.first` marks its first piece.


OPERATIONS = {"insert": r.OP_INSERT, "update": r.OP_UPDATE, "delete": r.OP_DELETE}


class TransactionRows(NamedTuple):
    """Rows of one transaction, as row numbers of the batch in order."""

    group: int
    """Number of the transaction in its part."""
    numbers: list[int]
    batch: ChangeBatch
    texts: Texts
    first: bool

    def text(self, number: int) -> memoryview:
        """Return the text of one row; valid until the next batch."""
        ends = self.texts.ends
        return self.texts.data[int(ends[number - 1]) if number else 0 : int(ends[number])]


@dataclass(slots=True)
class ChosenInDomains(ChosenTransactions):
    """Selection of transactions that may also be limited to some domains."""

    domains: frozenset[int] = field(default_factory=frozenset)

    @property
    def everything(self) -> bool:
        return not self.domains and ChosenTransactions.everything.__get__(self)

    def shown(self, groups: Groups) -> npt.NDArray[np.bool_]:
        shown = ChosenTransactions.shown(self, groups)
        return shown & np.isin(groups.domain, list(self.domains)) if self.domains else shown


@dataclass(slots=True)
class Changes:
    """Selector of the row changes to show. `ops`: numbers of the selected operations, None for all."""

    reading: Reading
    texts: RowTexts
    ops: frozenset[int] | None = None

    def of(self, part: Part) -> Iterator[TransactionRows]:
        """Yield the selected rows of a part, in order."""
        place = RangeOrigin(part.name, part.piece.offset)
        last = -1
        for batch, shown, gtids in self.reading.rows(part):
            wanted = np.ones(batch.rows, np.bool_) if shown is None else shown[batch.group]
            if self.ops is not None:
                wanted &= np.isin(batch.op, list(self.ops))
            numbers = np.flatnonzero(wanted)
            if not len(numbers):
                continue
            texts = self.texts.write(batch, place, shown=shown, gtids=gtids)
            groups = batch.group[numbers]
            borders = np.flatnonzero(np.diff(groups)) + 1
            for piece in np.split(numbers, borders):
                group = int(batch.group[piece[0]])
                yield TransactionRows(group, piece.tolist(), batch, texts, group != last)
                last = group
