"""The source of the changes: a relay log that another process writes, or one of our own that lives as long as we do.

In: a relay directory, or the options of a connection. Out: a relay log to follow, and a way to ask the primary what a
table looks like, if there is a connection. The temporary replica has a server id of its own, never acknowledges, and
keeps at most OWN_LOG_BYTES on disk; it is gone when we are.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import structlog

from replica.config import FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID
from replica.embedded import EmbeddedReplica
from replica.errors import RelayError
from replica.plain_text import plain_event
from replica.relay_log.log import RelayLog

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping

    from structlog.typing import FilteringBoundLogger

    from replica.config import ReplicaConfig
    from replica.protocol.gtid import GtidPosition
    from replica.schema.table import TableSchema
    from replica.tail.names import Ask

OWN_FILE_BYTES: Final = 16 << 20
"""Files that were shown are removed: small ones go sooner. A larger transaction makes a larger file."""
OWN_LOG_BYTES: Final = 256 << 20
"""Then receiving pauses, until what is there was shown."""


class Source(NamedTuple):
    """A log to follow. `replica` is the temporary one; None where another process writes the log."""

    log: RelayLog
    ask: Ask | None
    replica: EmbeddedReplica | None = None


def check_relay_directory(directory: Path) -> None:
    """Raise a RelayError where there is no such folder, where it may not be read, or where it is something else."""
    try:
        entries = [entry.name for entry in directory.iterdir()]
    except OSError as error:
        raise RelayError(
            f"{directory} is no relay directory: {error.strerror}.", hint="Name the relay_dir of a replica."
        ) from None
    if entries and not any(name.startswith("relay.") for name in entries):
        raise RelayError(f"{directory} holds no relay log.", hint="Name the relay_dir of a replica.")


def warnings_logger() -> FilteringBoundLogger:
    """Return a logger for what goes wrong with a connection and is tried again: else no one would know why nothing
    comes.
    """
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
    # An error ends the replica and is raised from the next call; advice about settings belongs to `check`.
    if method == "error" or event["event"] == "server setting":
        raise structlog.DropEvent
    return event


@contextlib.contextmanager
def relay_directory(directory: Path, config: ReplicaConfig | None) -> Iterator[Source]:
    """Give a relay log that is there; `config` is asked for what columns are called.

    Raises:
        RelayError: there is no such folder, or it may not be read.
    """
    check_relay_directory(directory)
    if config is None:
        yield Source(RelayLog(directory), None)
        return
    with contextlib.closing(EmbeddedReplica(config, directory)) as asking:
        yield Source(RelayLog(directory), _asker(asking))


@contextlib.contextmanager
def primary(
    config: ReplicaConfig, start: str | GtidPosition, log: FilteringBoundLogger, **options: object
) -> Iterator[Source]:
    """Give a replica of our own. `start`: latest, earliest, or a position; `options` go before those of `config`.

    Raises:
        ReplicaError: as EmbeddedReplica raises them, from the source's calls.
    """
    with tempfile.TemporaryDirectory(prefix="mariadb-replica-") as folder:
        own = config.model_copy(
            update={
                "server_id": random.SystemRandom().randint(FIRST_RANDOM_SERVER_ID, MAX_SERVER_ID),
                "semi_sync": False,
                "annotate": True,
                "relay_dir": Path(folder),
                "relay_max_file_bytes": OWN_FILE_BYTES,
                "relay_max_bytes": OWN_LOG_BYTES,
                "start": start if isinstance(start, str) else "latest",
                **options,
            }
        )
        with EmbeddedReplica(own, Path(folder), log=log) as replica:
            replica.start(None if isinstance(start, str) else start)
            yield Source(replica.log, _asker(replica), replica)


def _asker(replica: EmbeddedReplica) -> Ask:
    def ask(database: str, table: str) -> TableSchema:
        (schema,) = replica.fetch_schema([(database, table)]).values()
        return schema

    return ask
