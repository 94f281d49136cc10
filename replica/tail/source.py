"""Source of changes for `tail`: a relay log of another process, or a temporary one.

`relay_directory` and `primary` yield a `Source`. It has the relay log to follow and, with a connection, a function that
asks the primary for a table's definition.
"""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from replica.errors import RelayError
from replica.live.embedded import EmbeddedReplica
from replica.plain_text import plain_event
from replica.primary_reader.own_log import own_log
from replica.relay_log.log import RelayLog

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from replica.options.config import ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.row_reader.live_names import Ask
    from replica.schema.table import TableSchema


class Source(NamedTuple):
    """Log to follow. `replica`: the temporary replica; None if another process writes the log."""

    log: RelayLog
    ask: Ask | None
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
        yield Source(RelayLog(directory), _asker(asking))


@contextlib.contextmanager
def primary(config: ReplicaConfig, start: str | GtidPosition, log: FilteringBoundLogger) -> Iterator[Source]:
    """Yield the log of a temporary replica. `start`: latest, earliest, or a position.

    Raises:
        ReplicaError: Any error of EmbeddedReplica, from the calls of the source.
    """
    with own_log(config, start, log) as own:
        yield Source(own.log, _asker(own.replica), own.replica)


def _asker(replica: EmbeddedReplica) -> Ask:
    def ask(database: str, table: str) -> TableSchema:
        (schema,) = replica.fetch_schema([(database, table)]).values()
        return schema

    return ask
