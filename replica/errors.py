"""Every error that this project raises, and the exit code with which it ends a command.

    ReplicaError
    ├── ConfigError 20                an option is unknown, missing or out of range: fix the call
    ├── PrerequisiteError 21          the server's settings or the account's grants do not allow replication
    ├── InstallationError 22          a package is missing, broken, or hidden by a file of the same name
    ├── ServerError 30                the server answered with an ERR packet (code, sqlstate, message)
    │   ├── AuthenticationError 31    wrong user or password, TLS required, missing privilege
    │   ├── PositionLostError 32      the position is diverged, or not in this server's binlog
    │   │   ├── PositionPurgedError   the transactions after the position were purged; later ones can still be read
    │   │   └── AmbiguousPositionError the position matches several places: sequence numbers decreased
    │   └── DuplicateServerIdError 33 another replica uses our server id (4052): never reconnect
    ├── OutOfOrderGtidError 34        a sequence number decreased within its domain: reading stops before it
    ├── DisconnectedError 40          the connection ended; reconnecting may help (the only retryable error)
    ├── ProtocolError 50              the bytes violate the protocol
    │   ├── TruncatedError            the bytes end too early
    │   ├── ChecksumError             an event does not match its CRC32
    │   └── UnsupportedEventError     an event type that we cannot read and must not skip
    ├── SchemaError 60                a table is unknown, or its columns do not match the row images
    │   ├── UnsupportedColumnError    a column type or character set that we cannot decode
    │   ├── KeyChangedError           the key of a table changed after a part of its rows was delivered
    │   └── ColumnsAddedError         a table has new columns, and the options end the query there: restart it
    ├── StatementDmlError 61          a statement that was logged as text changed rows of the selected tables
    ├── RelayError 70                 a relay file is torn, foreign, missing or locked
    │   └── DiskFullError             the disk or the quota is full: free space, and the work continues
    ├── StorageError 71               a bucket refuses requests, or a bucket or the catalog of tables does not answer
    └── DataLossError 80              the requested data is no longer retained
        └── RelayFileRemovedError     a relay file that is needed was removed

The message says what happened and where (a file and offset, an option, a table). The `hint` says what to do.
"""

from __future__ import annotations

from typing import ClassVar, Final

__all__ = [
    "AmbiguousPositionError",
    "AuthenticationError",
    "ChecksumError",
    "ColumnsAddedError",
    "ConfigError",
    "DataLossError",
    "DisconnectedError",
    "DiskFullError",
    "DuplicateServerIdError",
    "InstallationError",
    "KeyChangedError",
    "OutOfOrderGtidError",
    "PositionLostError",
    "PositionPurgedError",
    "PrerequisiteError",
    "ProtocolError",
    "RelayError",
    "RelayFileRemovedError",
    "ReplicaError",
    "SchemaError",
    "ServerError",
    "StatementDmlError",
    "StorageError",
    "TruncatedError",
    "UnsupportedColumnError",
    "UnsupportedEventError",
]

MAY_READ: Final = "Check its name, and that this user may read it."
"""Hint for a file of the user that cannot be read."""

_ENDS_OF_SENTENCES: Final = (".", ":", "!", "?", "…")


class ReplicaError(Exception):
    """Base class of all errors. `hint` is one sentence of advice, shown after the message."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        # A text from the server or the system may end with a full stop, and the message that quotes the text adds its
        # own.
        if message.endswith("..") and not message.endswith("..."):
            message = message.removesuffix(".")
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        if not self.hint:
            return self.message
        return f"{self.message}{'' if self.message.endswith(_ENDS_OF_SENTENCES) else '.'} {self.hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles errors between processes. Unpickle them without the `__init__` of a subclass.
        return _rebuild, (type(self), self.message, self.__dict__)


def _rebuild(kind: type[ReplicaError], message: str, state: dict[str, object]) -> ReplicaError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(state)
    return error


class ConfigError(ReplicaError):
    """An option is unknown, missing, contradictory or out of range."""

    exit_code = 20


class PrerequisiteError(ReplicaError):
    """The server or the account is not set up for replication. The message lists every failed check."""

    exit_code = 21


class InstallationError(ReplicaError):
    """A required package is missing, broken or hidden by a file, or an executor has another version of this package."""

    exit_code = 22


class ServerError(ReplicaError):
    """The server answered with an ERR packet."""

    exit_code = 30

    def __init__(self, message: str, *, code: int = 0, sqlstate: str = "", hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.code = code
        self.sqlstate = sqlstate


class AuthenticationError(ServerError):
    """Wrong user or password, TLS required, or a privilege is missing."""

    exit_code = 31


class PositionLostError(ServerError):
    """The server does not have the position: it was purged, it diverged, or it belongs to a reset or another server."""

    exit_code = 32


class PositionPurgedError(PositionLostError):
    """The server knows the position, but removed the binlogs that contain the transactions after it."""


class AmbiguousPositionError(PositionLostError):
    """The position matches more than one place in the binlog, because sequence numbers decreased."""


class DuplicateServerIdError(ServerError):
    """Another replica registered with our server id, and the server closed our connection (error 4052)."""

    exit_code = 33


class OutOfOrderGtidError(ReplicaError):
    """A transaction's sequence number is not above the last one of its domain, and gtid_strict_mode is on."""

    exit_code = 34


class DisconnectedError(ReplicaError):
    """The connection ended or became silent. This is the only error that a reconnect may fix."""

    exit_code = 40


class ProtocolError(ReplicaError):
    """The bytes violate the protocol. `offset` is the byte offset of the fault, from the start of the input."""

    exit_code = 50

    def __init__(self, message: str, *, offset: int | None = None, hint: str = "") -> None:
        super().__init__(message if offset is None else f"{message} (at offset {offset})", hint=hint)
        self.offset = offset

    @property
    def placeless(self) -> str:
        """The message without its offset, for a caller that adds a more useful place."""
        return self.message.removesuffix(f" (at offset {self.offset})")


class TruncatedError(ProtocolError):
    """The bytes end before the structure ends."""


class ChecksumError(ProtocolError):
    """Damaged bytes: an event does not match its CRC32, or a frame of a compressed connection cannot be inflated."""


class UnsupportedEventError(ProtocolError):
    """An event type that cannot be read and must not be skipped (no IGNORABLE flag)."""


class SchemaError(ReplicaError):
    """A table is unknown, or its columns do not match the columns of the row images."""

    exit_code = 60


class UnsupportedColumnError(SchemaError):
    """A column type or character set that cannot be decoded exactly."""


class KeyChangedError(SchemaError):
    """The key of a table changed after a part of its rows was delivered by the old key."""


class ColumnsAddedError(SchemaError):
    """A table has new columns, and the options of the query end it at that change.

    A restarted query continues from the change with the new columns.
    """


class StatementDmlError(ReplicaError):
    """A statement that the binlog contains as text changed rows.

    The binlog has no row events of these changes, so they cannot be delivered.
    """

    exit_code = 61


class RelayError(ReplicaError):
    """A relay file is torn, foreign, missing, or locked by another process."""

    exit_code = 70


class DiskFullError(RelayError):
    """The disk or quota of a relay log or a mirror is full.

    Committed data is not lost. The work continues once space is free.
    """


class StorageError(ReplicaError):
    """A bucket of an object store refuses requests, or a bucket or the catalog of tables does not answer.

    Committed data is not lost. A mirror repeats the failed micro-batch at its next start.
    """

    exit_code = 71


class DataLossError(ReplicaError):
    """The requested data is no longer retained anywhere that we can reach."""

    exit_code = 80


class RelayFileRemovedError(DataLossError):
    """A relay file that is needed was removed. The primary may still have the same transactions."""


def describe(error: ReplicaError) -> dict[str, object]:
    """Return the fields of an error for a structured log or a JSON answer."""
    return {"error": type(error).__name__, "message": error.message, "hint": error.hint, "exit_code": error.exit_code}
